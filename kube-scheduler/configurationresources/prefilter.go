package configurationresources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const stateKey = Name

// cycle is what the plugin knows of a pod during its scheduling cycle.
type cycle struct {
	req *ledger.Request
	// wait takes note of why the pod is refused.
	wait *podWait
	// feasibility is the request for the nodes of the snapshot. Both, and what is
	// free of the amounts there, are set by the slot cache.
	feasibility *ledger.Feasibility
	snapshot    *snapshot
	// amounts are what the node must advertise for the pod, as the kubelet counts it.
	amounts []amount
	// released are UIDs of pods that preemption imagines away; expected are
	// nominated pods that it imagines on the node, by UID.
	released map[string]bool
	expected map[string]*ledger.Request
	// reasons are the texts of shortfalls, which many nodes have alike.
	reasons *reasons
	// refused tells the slot cache of the first node that had slots for the pod and did not
	// advertise enough of them.
	refused *sync.Once
	// assignment is set by Reserve.
	assignment ledger.Assignment
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{req: c.req, wait: c.wait, feasibility: c.feasibility, snapshot: c.snapshot, amounts: c.amounts, reasons: c.reasons, refused: c.refused, released: maps.Clone(c.released), expected: maps.Clone(c.expected), assignment: c.assignment}
}

func readCycle(state fwk.CycleState) (*cycle, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("read %s's cycle state: %w", Name, err))
	}
	return data.(*cycle), nil
}

// minNodesToNarrow is the size of a cluster from which on PreFilter narrows the
// nodes to those that reach the devices. It saves calls of Filter, but upstream
// says no more of the other nodes than that the plugin refused them, where Filter
// says why.
const minNodesToNarrow = 100

// PreFilter reads the pod's requests, refuses those that no node can meet, and
// narrows the nodes to those that reach the devices.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.lead()
	req, err := requestOf(pod)
	if err != nil {
		return nil, unresolvable(err.Error())
	}
	if req == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if _, err := assignment.Input(pod.Annotations); err != nil {
		p.cache.refuse(pod, invalidRequest)
		return nil, unresolvable(err.Error())
	}
	wait := p.cache.expect(p.pods, pod)
	if status := p.unambiguous(req); status != nil {
		wait.meet(resourceNameTaken)
		return nil, status
	}
	if !p.cache.awaitStart(ctx) {
		wait.meet(ledgerNotRead)
		return nil, unresolvable("the Configurations, DeviceSlices and SlotClaims have not been read yet: are the CRDs installed, and may the scheduler list them? (kubectl apply -k deploy/)")
	}
	if status := p.allowed(req); status != nil {
		wait.meet(namespaceNotAllowed)
		return nil, status
	}
	p.sweepOrphans()
	limit := len(nodes) / 2
	if len(nodes) < minNodesToNarrow {
		limit = 0
	}
	reach, shortfall := p.cache.reach(req, limit)
	if shortfall != nil {
		wait.meet(reasonFor(shortfall))
		return nil, unresolvable(shortfall.String())
	}
	c := &cycle{req: req, wait: wait, amounts: p.cache.sortedAmounts(pod), reasons: &reasons{}, refused: &sync.Once{}}
	p.cache.prepare(c, nodes)
	state.Write(stateKey, c)
	if reach == nil {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(reach...)}, nil
}

func unresolvable(reason string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
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
	uid := string(added.GetPod().UID)
	if c.released[uid] {
		delete(c.released, uid)
		return nil
	}
	if p.cache.holds(uid) {
		return nil
	}
	req, err := requestOf(added.GetPod())
	if err != nil || req == nil {
		return nil // it will never get slots
	}
	if c.expected == nil {
		c.expected = map[string]*ledger.Request{}
	}
	c.expected[uid] = req
	return nil
}

// RemovePod imagines a pod away.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	uid := string(removed.GetPod().UID)
	if _, ok := c.expected[uid]; ok {
		delete(c.expected, uid)
		return nil
	}
	if c.released == nil {
		c.released = map[string]bool{}
	}
	c.released[uid] = true
	return nil
}

// draft is the ledger as the cycle imagines it. The caller holds the slot cache's lock.
func (c *cycle) draft(l *ledger.Ledger, node string, strategy ledger.Strategy) *ledger.Draft {
	draft := l.Draft(strategy, c.req.Pod)
	for uid := range c.released {
		draft.Release(uid)
	}
	for _, uid := range slices.Sorted(maps.Keys(c.expected)) {
		draft.Reserve(node, c.expected[uid])
	}
	return draft
}
