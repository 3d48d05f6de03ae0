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
	c := claimOf(&v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "b", Level: v1alpha1.InstanceLevel, Holder: name.String()}})
	for order, steps := range map[string][]func(){
		"shown before":     {func() { r.account.set(name, c) }, func() { r.account.gone(name, c.uid) }},
		"not shown before": {func() { r.account.gone(name, c.uid) }},
	} {
		c.uid = types.UID(order)
		for _, step := range steps {
			step()
		}
		r.account.set(name, c) // as create does with the answer
		if by, taken := r.account.holder(name); taken {
			t.Errorf("%s: slot %s is %s, which is gone", order, name, by)
		}
	}
	c.uid, c.version = "another", 2
	r.account.set(name, c)
	if _, taken := r.account.holder(name); !taken {
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
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if usage := r.api.usage(); len(usage) != want {
			t.Fatalf("claims %v, want %d", usage, want)
		}
		r.account.replace("cam", nil, 1)
	}
}
