package configurationresources

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// minNodesToNarrow is the size of a cluster from which on PreFilter narrows the
// nodes to those that reach the devices. It saves calls of Filter, but upstream
// says no more of the other nodes than that the plugin refused them, where Filter
// says why.
const minNodesToNarrow = 100

// PreFilter reads the pod's requests, refuses those that no node can meet, and
// narrows the nodes to those that reach the devices.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	req, err := p.cache.RequestOf(pod)
	if err != nil {
		return nil, unresolvable(err.Error())
	}
	if req == nil || pod.Spec.NodeName != "" { // a bound one may be looked at again to be resized
		return nil, fwk.NewStatus(fwk.Skip)
	}
	var wait *waitreason.Record
	away, imagines := ctx.Value(imaginedAway{}).([]*v1.Pod)
	if !imagines { // else the try of its group goes on
		wait = p.cache.Expect(p.pods, pod, req)
	}
	if _, err := assignment.Input(pod.Annotations); err != nil {
		wait.Meet(waitreason.InvalidRequest)
		return nil, unresolvable(err.Error())
	}
	if !p.cache.AwaitStart(ctx) {
		wait.Meet(waitreason.LedgerNotRead)
		return nil, unresolvable("the Configurations, DeviceSlices and SlotClaims have not been read yet: are the CRDs installed, and may the scheduler list them? (kubectl apply -k deploy/)")
	}
	rest, status := p.withoutDRA(req)
	if status != nil {
		wait.Meet(waitreason.ResourceNameTaken)
		return nil, status
	}
	if rest != req {
		state.Write(leftKey, left{})
	}
	req = rest
	resources := slotrequest.Resources(req)
	if len(resources) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	for _, resource := range resources {
		c := p.cache.Configuration(resource)
		if c == nil {
			continue
		}
		if status := p.allowed(req.Namespace, resource, c); status != nil {
			wait.Meet(waitreason.NamespaceNotAllowed)
			return nil, status
		}
		if !c.GivesSlots() {
			wait.Meet(waitreason.AllocatedByDRA)
			return nil, unresolvable(allocatedByDRA(resource, c))
		}
	}
	limit := len(nodes) / 2
	if len(nodes) < minNodesToNarrow {
		limit = 0
	}
	var (
		reach     []string // nil for more than limit
		shortfall *ledger.Shortfall
	)
	p.cache.Read(func(l *ledger.Ledger) { reach, shortfall = l.Reach(req, limit) })
	if shortfall != nil {
		wait.Meet(waitreason.Of(shortfall))
		return nil, unresolvable(shortfall.String())
	}
	inCache := p.cache.NewCycle(pod, req, nodes, groupOf(state), p.args.Strategy)
	for _, other := range away {
		inCache.ImagineAway(other)
	}
	state.Write(stateKey, &cycle{Cycle: inCache, wait: wait, texts: &sync.Map{}})
	if reach == nil {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(reach...)}, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod imagines a pod on the node: one that RemovePod took away, or a
// nominated one, which has no slots yet.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	return fwk.AsStatus(c.Imagine(added.GetPod()))
}

// RemovePod imagines a pod away.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	c.ImagineAway(removed.GetPod())
	return nil
}
