package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Six devices that both nodes reach have as many brokers as spec.brokerLimits allows. Those
// that run stay, whatever the limits become, and the others come when there is room.
func TestBrokerLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.brokers("few", 1, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.BrokerLimits = &akriv0.BrokerLimits{PerNode: 2, Total: 3}
	}, "d0", "d1", "d2", "d3", "d4", "d5")
	running := func(n int) map[types.UID]bool {
		t.Helper()
		uids := map[types.UID]bool{}
		on := map[string]int{}
		for _, p := range r.awaitBrokerCount("few", n) {
			uids[p.UID] = true
			on[p.Spec.NodeName]++
		}
		if n < 6 && (on[nodeA] > 2 || on[nodeB] > 2) {
			t.Errorf("brokers on %v", on)
		}
		return uids
	}
	running(3)
	r.awaitProblem("few", "BrokerLimit", "3 of 6 broker pods: spec.brokerLimits.total is 3")
	if m := r.controllerMetrics(); !containsAll(m, []string{`kubeslot_controller_brokers_withheld{configuration="few"} 3`}) {
		t.Errorf("metrics:\n%s", m)
	}
	r.patchConfiguration("few", `{"spec":{"brokerLimits":{"total":9}}}`)
	before := running(4)
	r.awaitProblem("few", "BrokerLimit", "4 of 6 broker pods: spec.brokerLimits.perNode is 2, and 2 nodes")

	r.patchConfiguration("few", `{"spec":{"brokerLimits":{"perNode":1,"total":1}}}`)
	r.awaitProblem("few", "BrokerLimit", "4 of 6 broker pods: spec.brokerLimits.total is 1;")
	for uid := range running(4) {
		if !before[uid] {
			t.Errorf("broker %s is not one of %v", uid, before)
		}
	}
	r.patchConfiguration("few", `{"spec":{"brokerLimits":null}}`)
	running(6)
	r.awaitNoProblem("few")
}
