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
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const stateKey = Name

// cycle is what the plugin knows of a pod during its scheduling cycle.
type cycle struct {
	req *ledger.Request
	// wait takes note of why the pod is refused.
	wait *podWait
	// survey is the request for the nodes of the roster. Both, and the amounts' rooms,
	// are set by the book.
	survey *ledger.Feasibility
	roster *roster
	// amounts are what the node must advertise for the pod, as the kubelet counts it.
	amounts []amount
	// released are UIDs of pods that preemption imagines away; expected are
	// nominated pods that it imagines on the node, by UID.
	released map[string]bool
	expected map[string]*ledger.Request
	// reasons are the texts of shortfalls, which many nodes have alike.
	reasons *reasons
	// refused tells the book of the first node that had slots for the pod and did not
	// advertise enough of them.
	refused *sync.Once
	// assignment is set by Reserve.
	assignment ledger.Assignment
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{req: c.req, wait: c.wait, survey: c.survey, roster: c.roster, amounts: c.amounts, reasons: c.reasons, refused: c.refused, released: maps.Clone(c.released), expected: maps.Clone(c.expected), assignment: c.assignment}
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
		p.book.refuse(pod, invalidRequest)
		return nil, unresolvable(err.Error())
	}
	wait := p.book.expect(p.pods, pod)
	if status := p.unambiguous(req); status != nil {
		wait.meet(resourceNameTaken)
		return nil, status
	}
	if !p.book.awaitStart(ctx) {
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
	reach, shortfall := p.book.reach(req, limit)
	if shortfall != nil {
		wait.meet(reasonFor(shortfall))
		return nil, unresolvable(shortfall.String())
	}
	c := &cycle{req: req, wait: wait, amounts: p.book.sortedAmounts(pod), reasons: &reasons{}, refused: &sync.Once{}}
	p.book.survey(c, nodes)
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
	if p.book.holds(uid) {
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

// draft is the ledger as the cycle imagines it. The caller holds the book's lock.
func (c *cycle) draft(l *ledger.Ledger, node string, strategy ledger.Strategy) *ledger.Draft {
	draft := l.Draft(strategy).For(c.req.Pod)
	for uid := range c.released {
		draft.Release(uid)
	}
	for _, uid := range slices.Sorted(maps.Keys(c.expected)) {
		draft.Reserve(node, c.expected[uid])
	}
	return draft
}

// Filter reports whether the node has slots for all of the pod's containers, and
// its kubelet knows of them.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	c, status := readCycle(state)
	if status != nil {
		return status
	}
	place := c.roster.place(node)
	if shortfall := p.book.fit(c, node.Node().Name, place, p.args.Strategy); shortfall != nil {
		c.meet(reasonFor(shortfall))
		return c.reasons.status(shortfall)
	}
	if p.book.choosesSlots(node.Node().Name) {
		status = lacks(pod, node)
	} else {
		status = unadvertised(c.amounts, node, place)
	}
	if status != nil {
		c.meet(notAdvertised)
		c.refused.Do(func() { p.book.refusedByNode(pod) })
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

// PreScore skips Score for pods that ask for no slots: it would be asked about
// hundreds of nodes.
func (*Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if _, err := state.Read(stateKey); err != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes as the plugin's arguments weigh: those with more of the
// requested slots free (with fewer, when packing), and those with devices of
// their own.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c, status := readCycle(state)
	if status != nil {
		return 0, status
	}
	prospect := p.book.prospect(c, node.Node().Name, c.roster.place(node))
	if p.args.Strategy == ledger.Pack {
		prospect.Free = 1 - prospect.Free
	}
	free, local := float64(*p.args.NodeScore.FreeSlots), float64(*p.args.NodeScore.LocalDevices)
	return int64(float64(fwk.MaxNodeScore) * (free*prospect.Free + local*prospect.Local) / (free + local)), nil
}

// ScoreExtensions implements fwk.ScorePlugin: scores are absolute.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

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
	if p.book.choosesSlots(node) {
		return nil
	}
	a, shortfall, err := p.book.assume(c, node, p.args.Strategy)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if shortfall != nil {
		p.book.queue.RetryLater(pod.UID) // another got it since Filter; it may find or preempt something else
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
	p.book.forget(pod)
}
