package devicepluginmode

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// An answer to a Get may arrive after the watch has shown the claim's deletion: nothing
// would show it again, and the slot would stay taken.
func TestAnswerAfterTheDeletion(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	name := slot.Name{Instance: east().instance, Index: 0}
	claim := func(uid, version string) *v1alpha1.SlotClaim {
		return &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name.String(), UID: types.UID(uid),
			ResourceVersion: version},
			Spec: v1alpha1.SlotClaimSpec{NodeName: "b", Level: v1alpha1.InstanceLevel, Holder: name.String()}}
	}
	for order, steps := range map[string][]bool{ // gone or not
		"shown before":     {false, true},
		"not shown before": {true},
	} {
		c := claim(order, "1")
		for _, gone := range steps {
			r.shows(c, gone)
		}
		r.met.Wrote(c) // as hold does with the answer
		if by := r.others(name.Instance); len(by) > 0 {
			t.Errorf("%s: slot %s is claimed by %s, which is gone", order, name, by[0].HeldBy())
		}
	}
	r.met.Wrote(claim("another", "2"))
	if len(r.others(name.Instance)) == 0 {
		t.Errorf("slot %s is free, though it is claimed again", name)
	}
}

// A slot that a container uses is claimed again when the API server has no claims at all,
// but not before it has said so.
func TestClaimedAgainOfNone(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	name := slot.Name{Instance: east().instance, Index: 0}
	key, value := slot.Annotation(name, "")
	r.machine.containers = []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Annotations: map[string]string{key: value}}}
	for _, want := range []int{0, 1} {
		r.synced.Store(want > 0)
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if usage := r.api.usage(); len(usage) != want {
			t.Fatalf("claims %v, want %d", usage, want)
		}
	}
}
