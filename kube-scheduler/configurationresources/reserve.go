package configurationresources

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
)

// Reserve takes the slots.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil // the pod asks for no slots
	}
	c := data.(*cycle)
	if status := p.unambiguous(c.req); status != nil {
		return status // a DeviceClass since PreFilter
	}
	if p.cache.choosesSlots(node) {
		return nil
	}
	a, shortfall, err := p.cache.assume(c, node, p.args.Strategy)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if shortfall != nil {
		p.cache.queue.RetryLater(pod.UID) // another got it since Filter; it may find or preempt something else
		return c.reasons.status(shortfall)
	}
	if err := binding.Contribute(state, pod, node, Name, partOf(a)); err != nil {
		return unresolvable(err.Error()) // Unreserve follows
	}
	step, err := p.beforeBind(pod, node, a)
	if err != nil {
		return fwk.AsStatus(err)
	}
	binding.Precede(state, Name, step)
	c.assignment = a
	return nil
}

// Unreserve gives the slots back, unless the pod turned out to be bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if _, err := state.Read(stateKey); err != nil {
		return
	}
	binding.Withdraw(state, pod, Name)
	p.cache.forget(pod)
}
