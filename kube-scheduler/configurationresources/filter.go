package configurationresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

// Filter reports whether the node has slots for all of the pod's containers, its kubelet
// knows of them, and its kubecri is there to give them.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	place := c.Place(node)
	if shortfall := c.Fit(node, place); shortfall != nil {
		c.meet(waitreason.Of(shortfall))
		return c.status(shortfall)
	}
	if status := c.Unadvertised(node); status != nil {
		c.meet(waitreason.NotAdvertised)
		return status
	}
	if c.KubecriAway(node, place) {
		c.wait.Meet(waitreason.KubecriAway) // also when others are imagined away: it could preempt there
		return kubecripods.Refused()
	}
	c.meet(waitreason.SlotsFree)
	return nil
}
