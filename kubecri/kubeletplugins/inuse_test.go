package kubeletplugins

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A container whose sandbox has ended keeps its slot as long as it may live: running, or in a state that the
// runtime does not know.
func TestContainersThatMayLiveKeepTheirSlots(t *testing.T) {
	name := slot.Name{Instance: "cam-8120fe", Index: 1}
	key, value := slot.Annotation(name, "id")
	for state, used := range map[runtimeapi.ContainerState]bool{
		runtimeapi.ContainerState_CONTAINER_RUNNING: true, runtimeapi.ContainerState_CONTAINER_UNKNOWN: true,
		runtimeapi.ContainerState_CONTAINER_CREATED: false, runtimeapi.ContainerState_CONTAINER_EXITED: false,
	} {
		box := &runtimeapi.PodSandbox{Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
		slots, _ := usedBy(crilist.Listing{
			Containers: []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", State: state, Annotations: map[string]string{key: value}}},
			Sandboxes:  map[string]*runtimeapi.PodSandbox{"s": box}})
		if _, is := slots[name]; is != used {
			t.Errorf("%v: the slot is in use: %t, want %t", state, is, used)
		}
	}
}
