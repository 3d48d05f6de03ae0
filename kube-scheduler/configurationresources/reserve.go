package configurationresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Reserve takes the slots. While nodes are looked for for a group, only the group knows of it:
// the framework reserves and gives back its pods, and, if all of them fit, reserves them again.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if err := takenUp(state); err != nil {
		return fwk.AsStatus(err) // tried again after a backoff
	}
	data, err := state.Read(stateKey)
	if err != nil {
		return nil // the pod asks for no slots
	}
	c := data.(*cycle)
	if _, status := p.withoutDRA(c.Request); status != nil {
		return status // a DeviceClass since PreFilter
	}
	if state.IsPodGroupSchedulingCycle() {
		if shortfall := c.Join(node); shortfall != nil {
			return c.status(shortfall)
		}
		return nil
	}
	step := &beforeBind{Plugin: p, pod: pod, node: node, bare: p.cache.ChoosesSlots(node)}
	var part map[string]types.ContainerInfo
	var shortfall *ledger.Shortfall
	if req := c.Request.WithNewBudget(); step.bare {
		shortfall = p.cache.KeepUntilClaimed(req, node, p.args.Strategy)
	} else {
		var a ledger.Assignment
		if a, shortfall, err = p.cache.Assume(req, node, p.args.Strategy, c.Joined); err == nil && shortfall == nil {
			part = partOf(a)
			err = step.toClaim(a)
		}
		if err != nil {
			return fwk.AsStatus(err) // Unreserve follows
		}
	}
	if shortfall != nil { // taken by another, since Filter
		p.cache.Queue.RetryLater(pod.UID) // it may find or preempt something else
		return c.status(shortfall)
	}
	if err := p.binder.Contribute(state, pod, node, Name, part, step); err != nil {
		return unresolvable(err.Error())
	}
	return nil
}

// Unreserve gives the slots back, unless the pod turned out to be bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	c, status := readCycle(state)
	if status != nil {
		return // the pod asks for no slots
	}
	if state.IsPodGroupSchedulingCycle() {
		c.Leave()
		return
	}
	binding.Withdraw(state)
	p.cache.Forget(pod)
}

// partOf is the slots as a part of a pod's assignment, by container.
func partOf(a ledger.Assignment) map[string]types.ContainerInfo {
	part := map[string]types.ContainerInfo{}
	for name, grants := range a {
		var c types.ContainerInfo
		assignment.Set(&c, grants)
		part[name] = c
	}
	return part
}
