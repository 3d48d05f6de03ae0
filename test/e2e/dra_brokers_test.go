package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Brokers of a Configuration that DRA gives have their slots by ResourceClaims. They move along when the allocator
// changes, both ways.
func TestDRABrokers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const name, instance = "drabroke", "drabroke-8120fe"
	podA, podB := nodeA+"-"+instance+"-pod", nodeB+"-"+instance+"-pod"
	r.brokers(name, 2, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.Allocator = akriv0.AllocatorDRA
	}, "foo0")
	byClaims := func() {
		for _, p := range r.awaitBrokersBy(true, podA, podB) {
			if got := r.instancesOf(r.agreeDRA(p.Name, name, 1)); got[0] != instance {
				t.Errorf("broker %s has %q, want %s", p.Name, got, instance)
			}
		}
	}
	byClaims()

	r.allocator(name, akriv0.AllocatorSlots)
	for _, p := range r.awaitBrokersBy(false, podA, podB) {
		found := false
		for _, h := range r.claims(name) {
			found = found || h.holder == string(p.UID) && h.level == v1alpha1.InstanceLevel
		}
		if !found {
			t.Errorf("broker %s has no slot: the claims are %+v", p.Name, r.claims(name))
		}
	}
	r.awaitAllocator(name, "")

	r.allocator(name, akriv0.AllocatorDRA)
	byClaims()
}

// awaitBrokersBy waits until the brokers are Ready, and all have their slots by ResourceClaims, or none has.
func (r *rig) awaitBrokersBy(claims bool, names ...string) (brokers []v1.Pod) {
	r.Helper()
	r.await(fmt.Sprintf("brokers by claims: %t", claims), func() (bool, string) {
		brokers = r.awaitBrokers(names...)
		for i := range brokers {
			if (len(brokers[i].Spec.ResourceClaims) > 0) != claims {
				return false, brokers[i].Name + " is the former"
			}
		}
		return true, ""
	})
	return brokers
}
