package slotcache

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Cycle is what one scheduling cycle asks of the cache: whether nodes of the scheduler's
// snapshot have what a pod requests. Its methods may be called concurrently, but for
// ImagineAway and Imagine.
type Cycle struct {
	Request *ledger.Request

	cache *Cache
	// view is what counts tell about the nodes of the snapshot, and found what Fit has answered about the
	// others, as long as nothing is imagined.
	view     *ledger.View
	found    *sync.Map // of *ledger.Shortfall, nil where it fits, by what View.Like says of the node
	snapshot *snapshot
	// amounts are what the node must advertise for the pod, as the kubelet counts it.
	amounts []amount
	// released are UIDs of pods that preemption imagines away; expected are
	// nominated pods that it imagines on the node, by UID.
	released map[string]bool
	expected map[string]*ledger.Request
	// group are the pods that are placed together with this one, nil when it is placed alone.
	group        *Group
	draftOfGroup *groupDraft
}

// NewCycle prepares a cycle of the pod to ask the scheduler's nodes. The group is that which it
// is placed with, or nil.
func (b *Cache) NewCycle(pod *v1.Pod, req *ledger.Request, nodes []fwk.NodeInfo, group *Group) *Cycle {
	c := &Cycle{Request: req.WithNewBudget(), found: &sync.Map{}, cache: b,
		released: map[string]bool{}, expected: map[string]*ledger.Request{},
		group: group, draftOfGroup: &groupDraft{}}
	amounts := slotrequest.Amounts(pod)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.snapshot.of(nodes) {
		b.snapshot = newSnapshot(nodes)
	}
	c.snapshot = b.snapshot
	c.view = b.ledger.View(c.Request, c.snapshot.nodes)
	for _, resource := range slotrequest.Resources(req) {
		name := v1.ResourceName(assignment.ResourcePrefix + resource)
		w := amount{name: name, n: amounts[name]}
		if _, kind := b.kinds.Load(resource); kind {
			w.freeAllocatable = c.snapshot.freeAllocatableOf(name)
		}
		c.amounts = append(c.amounts, w)
	}
	return c
}

// Clone is a Cycle in which other pods can be imagined.
func (c *Cycle) Clone() *Cycle {
	clone := *c
	clone.released, clone.expected, clone.draftOfGroup = maps.Clone(c.released), maps.Clone(c.expected), &groupDraft{}
	return &clone
}

// Place is where the node is in the scheduler's list; NoPlace for a copy of it.
func (c *Cycle) Place(node fwk.NodeInfo) int { return c.snapshot.place(node) }

// Fit asks whether the node, which has the place, has slots for the pod. It returns what it is short of, nil if
// it has them.
func (c *Cycle) Fit(node fwk.NodeInfo, place int, strategy ledger.Strategy) *ledger.Shortfall {
	asItIs := len(c.released) == 0 && len(c.expected) == 0
	if asItIs && place != NoPlace {
		if !c.view.Looked(place) {
			c.cache.mu.RLock()
			c.view.Look(place)
			c.cache.mu.RUnlock()
		}
		if shortfall, sure := c.view.At(place); sure && (shortfall != nil || c.group.empty()) {
			return shortfall
		}
	}
	name := node.Node().Name
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	if !asItIs || !c.group.empty() {
		_, shortfall := c.draft(name, strategy).Fit(name, c.Request)
		return shortfall
	}
	like := c.view.Like(name)
	if known, ok := c.found.Load(like); ok {
		return known.(*ledger.Shortfall)
	}
	_, shortfall := c.draft(name, strategy).Fit(name, c.Request)
	c.found.Store(like, shortfall)
	return shortfall
}

// draft is the ledger as the cycle imagines it when it asks the node. The caller holds the
// slot cache's lock.
func (c *Cycle) draft(node string, strategy ledger.Strategy) *ledger.Draft {
	var draft *ledger.Draft
	if c.group == nil {
		draft = c.cache.ledger.Draft(strategy, c.Request.Pod)
		c.release(draft)
	} else {
		draft = c.draftOfGroup.of(c, strategy)
	}
	for _, uid := range slices.Sorted(maps.Keys(c.expected)) {
		draft.Reserve(node, c.expected[uid])
	}
	return draft
}

// release takes away what the cycle imagines away.
func (c *Cycle) release(draft *ledger.Draft) {
	for uid := range c.released {
		draft.Release(uid)
	}
}

// Passed reports whether the node is as it was when it passed all of Filter, and advertises enough for this
// pod, too.
func (c *Cycle) Passed(node fwk.NodeInfo, place int) bool {
	if !c.remembers(place) {
		return false
	}
	known := false
	for i := range c.amounts {
		if w := &c.amounts[i]; w.freeAllocatable != nil {
			if !w.freeAllocatable.enough(place, node.GetGeneration(), w.n) {
				return false
			}
			known = true
		}
	}
	return known
}

// Passes records that the node has passed all of Filter.
func (c *Cycle) Passes(node fwk.NodeInfo, place int) {
	if !c.remembers(place) || v1alpha1.ChoosesSlots(node.Node()) {
		return
	}
	for i := range c.amounts {
		if w := &c.amounts[i]; w.freeAllocatable != nil {
			total, used := w.on(node)
			w.freeAllocatable.remember(place, node.GetGeneration(), total-used)
		}
	}
}

// remembers is false for a pod of a group: a node has its generation still when one is put on it.
func (c *Cycle) remembers(place int) bool { return place != NoPlace && c.group == nil }

// ScoreInputs are how well the nodes at the places can serve the pod.
func (c *Cycle) ScoreInputs(places []int) []ledger.ScoreInput {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	return c.view.ScoreInputs(places)
}

// Imagines reports whether the cycle is of a preemption that imagines pods away.
func (c *Cycle) Imagines() bool { return len(c.released) > 0 }

// ImagineAway imagines that the pod has no slots, nor will get any.
func (c *Cycle) ImagineAway(pod *v1.Pod) {
	uid := string(pod.UID)
	if _, ok := c.expected[uid]; ok {
		delete(c.expected, uid)
		return
	}
	c.released[uid] = true
	c.draftOfGroup = &groupDraft{}
}

// Imagine imagines a pod on the node that the cycle asks next: one that was imagined away, or
// a nominated one, which has no slots yet.
func (c *Cycle) Imagine(pod *v1.Pod) {
	uid := string(pod.UID)
	if c.released[uid] {
		delete(c.released, uid)
		c.draftOfGroup = &groupDraft{}
		return
	}
	if pod.Spec.NodeName != "" || c.cache.Holds(uid) {
		return // what a bound pod has is in the ledger, also if nodes chose it
	}
	req, err := c.cache.RequestOf(pod)
	if err != nil || req == nil {
		return // it will never get slots
	}
	expected := *req
	expected.Budget = c.Request.Budget
	c.expected[uid] = &expected
}
