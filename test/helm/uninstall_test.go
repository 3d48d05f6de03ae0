package helm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Where kubecri is not the chart's, or nodes are to stay as they are, the clean-up has no permissions on them.
func TestUninstallThatLeavesNodes(t *testing.T) {
	h := newHelm(t, 4)
	for _, set := range []string{"kubecri.enabled=false", "uninstall.cleanNodes=false"} {
		all := h.render(t, "--set", set)
		want := []string{"uninstall", "--release=kubeslot", "--namespace=kubeslot-system", "--timeout=240s"}
		if diff := cmp.Diff(want, args(t, all, "uninstall")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", set, diff)
		}
		if all.has("ConfigMap", "kubeslot-uninstall") || all.has("Role", "kubeslot:uninstall-leases") {
			t.Errorf("%s: there is what cleans nodes", set)
		}
		for _, rule := range field(all.get(t, "ClusterRole", "kubeslot:uninstall"), "rules").([]any) {
			for _, resource := range rule.(map[string]any)["resources"].([]any) {
				if slices.Contains([]any{"nodes/status", "slotclaims", "deviceslices"}, resource) {
					t.Errorf("%s: the clean-up may change %s", set, resource)
				}
			}
		}
	}
}

func args(t *testing.T, all objects, container string) []string {
	t.Helper()
	for _, pod := range all.pods(t) {
		for _, c := range pod.Spec.Containers {
			if c.Name == container {
				return c.Args
			}
		}
	}
	return nil
}
