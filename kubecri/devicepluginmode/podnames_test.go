package devicepluginmode

import (
	"testing"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A claim says which pod the kubelet has given its slot to, with one write for each pod.
func TestClaimsSayWhichPodHasTheirSlots(t *testing.T) {
	a := newAPI()
	r := newRig(t, a, "a", akriv0.ConfigurationSpec{}, "east")
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	has := func(pod string) *podresourcesapi.PodResources {
		return &podresourcesapi.PodResources{Namespace: "ns", Name: pod, Containers: []*podresourcesapi.ContainerResources{{Name: "main",
			Devices: []*podresourcesapi.ContainerDevices{{ResourceName: "akri.sh/cam", DeviceIds: []string{"cam-0"}}}}}}
	}
	for _, step := range []struct {
		name    string
		listed  []*podresourcesapi.PodResources
		want    string
		patches int
	}{
		{"the kubelet does not list it yet", nil, "", 0},
		{"it does", []*podresourcesapi.PodResources{has("smith")}, "ns/smith", 1},
		{"and still", []*podresourcesapi.PodResources{has("smith")}, "ns/smith", 1},
		{"the next pod has the id, too", []*podresourcesapi.PodResources{has("smith"), has("neo")}, "ns/smith", 1},
		{"then alone", []*podresourcesapi.PodResources{has("neo")}, "ns/neo", 2},
	} {
		r.machine.listed = step.listed
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.catchUp(10)
		if len(a.claims) != 1 {
			t.Fatalf("%s: %d claims", step.name, len(a.claims))
		}
		for _, c := range a.claims {
			if got := c.Annotations[v1alpha1.PodAnnotation]; got != step.want || a.patches != step.patches {
				t.Errorf("%s: the claim says %q after %d writes, want %q after %d", step.name, got, a.patches, step.want, step.patches)
			}
		}
	}
}
