package configurationresources

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// Filter reports whether the node has slots for all of the pod's containers, and
// its kubelet knows of them.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	place := c.snapshot.place(node)
	if shortfall := p.cache.fit(c, node.Node().Name, place, p.args.Strategy); shortfall != nil {
		c.meet(reasonFor(shortfall))
		return c.reasons.status(shortfall)
	}
	if p.cache.choosesSlots(node.Node().Name) {
		status = lacks(pod, node)
	} else {
		status = unadvertised(c.amounts, node, place)
	}
	if status != nil {
		c.meet(notAdvertised)
		c.refused.Do(func() { p.cache.refusedByNode(pod) })
		return status
	}
	c.meet(slotsFree)
	return nil
}

// meet takes note of how things are, and not of how preemption imagines them.
func (c *cycle) meet(r reason) {
	if len(c.released) == 0 {
		c.wait.meet(r)
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
