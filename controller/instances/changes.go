package instances

import (
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// changes says for the log in what an Instance is to become another.
func changes(existing, want *akriv0.Instance) string {
	is, to := &existing.Spec, &want.Spec
	var what []string
	for _, part := range []struct {
		name   string
		before any
		after  any
	}{
		{"nodes", [2]any{is.Nodes, existing.Status.NodeCount}, [2]any{to.Nodes, want.Status.NodeCount}},
		{"deviceUsage", is.DeviceUsage, to.DeviceUsage},
		{"capacity", is.Capacity, to.Capacity},
		{"properties", is.BrokerProperties, to.BrokerProperties},
		{"shared", is.Shared, to.Shared},
		{"cdiName", is.CDIName, to.CDIName},
		{"problems", existing.Status.Problems, want.Status.Problems},
		{"device", existing.Status.Device, want.Status.Device},
		{"owner", existing.OwnerReferences, want.OwnerReferences},
		{"finalizers", existing.Finalizers, want.Finalizers},
	} {
		if !apiequality.Semantic.DeepEqual(part.before, part.after) {
			what = append(what, part.name)
		}
	}
	if len(what) == 0 { // what follows from others
		return "its status changed"
	}
	return "changed: " + strings.Join(what, ", ")
}
