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
		if shortfall := c.Join(node, p.args.Strategy); shortfall != nil {
			return c.status(shortfall)
		}
		return nil
	}
	taken := func(shortfall *ledger.Shortfall) *fwk.Status { // by another, since Filter
		p.cache.Queue.RetryLater(pod.UID) // it may find or preempt something else
		return c.status(shortfall)
	}
	if p.cache.ChoosesSlots(node) { // the pod is bound without an assignment
		if shortfall := p.cache.KeepUntilClaimed(c.Request.WithNewBudget(), node, p.args.Strategy); shortfall != nil {
			return taken(shortfall)
		}
		return nil
	}
	a, shortfall, err := p.cache.Assume(c.Request.WithNewBudget(), node, p.args.Strategy)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if shortfall != nil {
		return taken(shortfall)
	}
	step, err := p.beforeBind(pod, node, a)
	if err != nil {
		return fwk.AsStatus(err) // Unreserve follows
	}
	if err := p.binder.Contribute(state, pod, node, Name, partOf(a), step); err != nil {
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
	binding.Withdraw(state, pod, Name)
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
