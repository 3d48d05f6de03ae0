package configurationresources

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

// Filter reports whether the node has slots for all of the pod's containers, and
// its kubelet knows of them.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	if shortfall := c.Fit(node, p.args.Strategy); shortfall != nil {
		c.meet(waitreason.Of(shortfall))
		return c.reasons.status(shortfall)
	}
	if status := c.Unadvertised(node); status != nil {
		c.meet(waitreason.NotAdvertised)
		return status
	}
	c.meet(waitreason.SlotsFree)
	return nil
}

// meet takes note of how things are, and not of how preemption imagines them.
func (c *cycle) meet(r waitreason.Reason) {
	if !c.Imagines() {
		c.wait.Meet(r)
	}
}

// reasons remembers the texts of a cycle's shortfalls.
type reasons struct {
	mu   sync.Mutex
	text map[ledger.Shortfall]string
}

// status makes a status of a shortfall. Each node gets its own: the framework
// writes into it.
func (r *reasons) status(shortfall *ledger.Shortfall) *fwk.Status {
	r.mu.Lock()
	text, known := r.text[*shortfall]
	if !known {
		text = shortfall.String()
		if r.text == nil {
			r.text = map[ledger.Shortfall]string{}
		}
		r.text[*shortfall] = text
	}
	r.mu.Unlock()
	if shortfall.Resolvable() {
		return fwk.NewStatus(fwk.Unschedulable, text)
	}
	return unresolvable(text)
}
