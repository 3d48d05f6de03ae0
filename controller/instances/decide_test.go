package instances

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func TestDecide(t *testing.T) {
	reported := device(nil)
	seen := inventory.Device{Configuration: configuration(1), Reported: &reported, Nodes: []string{"node-a"}}
	gone := inventory.Device{Configuration: configuration(1)}
	claimed := gone
	claimed.Claims = []inventory.Claim{{SlotClaim: claimOf(0, "node-a", v1alpha1.InstanceLevel), DoesNotCount: errWhy}}
	orphan := inventory.Device{}
	elsewhere := seen
	elsewhere.Configuration = configuration(1)
	elsewhere.Configuration.Namespace = "other"

	ours := view(key, seen, nil)
	change := func(f func(*akriv0.Instance)) *akriv0.Instance {
		i := ours.DeepCopy()
		f(i)
		return i
	}
	formers := change(func(i *akriv0.Instance) { i.OwnerReferences[0].UID = "former" })
	// As Akri's agents and kubecris of before leave it.
	old := change(func(i *akriv0.Instance) {
		i.Status, i.Spec.Nodes = akriv0.InstanceStatus{}, []string{"node-a", "node-old"}
		i.Finalizers = []string{"node-a", "node-old"}
		i.Spec.DeviceUsage["cam-8120fe-0"] = "node-old"
	})
	for name, tc := range map[string]struct {
		device   inventory.Device
		existing *akriv0.Instance
		lacks    []string // nodes that lack slices
		verb     verb
		reason   string
	}{
		"nothing of nothing":            {gone, nil, nil, "", ""},
		"a device is found":             {seen, nil, nil, create, "found"},
		"claims alone make no Instance": {claimed, nil, nil, "", ""},
		"another namespace's":           {elsewhere, nil, nil, "", ""},
		"as it should be":               {seen, ours, nil, "", ""},
		"changed by hand": {seen, change(func(i *akriv0.Instance) { i.Spec.Capacity = 50 }), nil,
			patch, ""},
		"owner taken off by hand": {seen, change(func(i *akriv0.Instance) { i.OwnerReferences = nil }), nil,
			patch, ""},
		"finalizer set by hand": {seen,
			change(func(i *akriv0.Instance) { i.Finalizers = []string{"a/b"} }), nil, patch, ""},
		"junk in the usage": {seen,
			change(func(i *akriv0.Instance) { i.Spec.DeviceUsage["junk"] = "x" }), nil, patch, ""},
		"problems of its own": {seen,
			change(func(i *akriv0.Instance) { i.Status.Problems = []string{"x"} }), nil, patch, ""},
		"labels are anybody's":              {seen, change(func(i *akriv0.Instance) { i.Labels = map[string]string{"a": "b"} }), nil, "", ""},
		"another Configuration's":           {seen, change(func(i *akriv0.Instance) { i.Spec.ConfigurationName = "ca" }), nil, remove, "names another"},
		"a former Configuration's":          {seen, formers, nil, remove, "was deleted"},
		"nobody sees it":                    {gone, ours, nil, remove, "no node sees"},
		"nobody sees it, it is claimed":     {claimed, ours, nil, patch, ""},
		"no Configuration":                  {orphan, ours, nil, remove, "does not exist"},
		"the name is another namespace's":   {elsewhere, ours, nil, remove, "other/cam has the name"},
		"from before, adopted":              {seen, old, nil, patch, ""},
		"from before, of nobody":            {gone, old, nil, remove, ""},
		"from before, not all upgraded":     {seen, old, []string{"node-old"}, wait, "node node-old"},
		"from before, none upgraded":        {gone, old, []string{"node-a", "node-old"}, wait, "node node-a"},
		"from before, no Configuration":     {orphan, old, []string{"node-old"}, remove, ""},
		"another node is not upgraded":      {seen, old, []string{"node-x"}, patch, ""},
		"ours, of a node that lacks slices": {gone, ours, []string{"node-a"}, remove, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(key, tc.device, tc.existing, nil, func(node string) bool { return slices.Contains(tc.lacks, node) })
			if got.verb != tc.verb || !strings.Contains(got.reason, tc.reason) || (got.want != nil) != (tc.verb == create || tc.verb == patch) {
				t.Errorf("%q because %q, want %q", got.verb, got.reason, tc.verb)
			}
			if got.want == nil {
				return
			}
			if next := decide(key, tc.device, got.want, nil, func(string) bool { return false }); next.verb != "" {
				t.Errorf("once that is done, %q because %q", next.verb, next.reason)
			}
		})
	}
}

func TestDeletionIsNotHeldUp(t *testing.T) {
	now := metav1.Now()
	i := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key.Name, DeletionTimestamp: &now,
		Finalizers: []string{"node-a", metav1.FinalizerDeleteDependents}}}
	s := decide(key, inventory.Device{}, i, nil, func(string) bool { return true })
	if s.verb != patch || !slices.Equal(s.want.Finalizers, []string{metav1.FinalizerDeleteDependents}) {
		t.Fatalf("%+v, want Akri's finalizer taken off", s)
	}
	if s := decide(key, inventory.Device{}, s.want, nil, func(string) bool { return true }); s.verb != "" {
		t.Errorf("%+v, want the garbage collector to go on", s)
	}
}
