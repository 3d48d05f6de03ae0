package slotcache

import (
	"errors"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/kubecripods"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/assignment"
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
	group  *Group
	Joined ledger.Assignment // what Join gave last
	// base is the ledger without what is imagined away, and whole is with what the group's members are to get, too.
	// Both are kept from one node to the next: to make them anew each time would cost as much as nodes times pods.
	// Of devices that they have seen they know no later change, like the scheduler's snapshot; who takes slots makes
	// sure of them.
	base  *ledger.Draft
	whole *whole
}

// NewCycle prepares a cycle of the pod to ask the scheduler's nodes. The group is that which it
// is placed with, or nil.
func (b *Cache) NewCycle(pod *v1.Pod, req *ledger.Request, nodes []fwk.NodeInfo, group *Group,
	strategy ledger.Strategy) *Cycle {
	c := &Cycle{Request: req.WithNewBudget(), found: &sync.Map{}, cache: b,
		released: map[string]bool{}, expected: map[string]*ledger.Request{},
		group: group, base: b.ledger.Draft(strategy, req.Pod), whole: &whole{}}
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
		_, kind := b.kinds.Load(resource)
		c.amounts = append(c.amounts, amount{name: name, n: amounts[name], kind: kind})
	}
	return c
}

// Clone is a Cycle in which other pods can be imagined.
func (c *Cycle) Clone() *Cycle {
	clone := *c
	clone.released, clone.expected = maps.Clone(c.released), maps.Clone(c.expected)
	clone.base, clone.whole = c.base.Fork(), &whole{}
	return &clone
}

// Place is where the node is in the scheduler's list; NoPlace for a copy of it.
func (c *Cycle) Place(node fwk.NodeInfo) int { return c.snapshot.place(node) }

// Fit asks whether the node, which has the place, has slots for the pod. It returns what it is short of, nil if
// it has them.
func (c *Cycle) Fit(node fwk.NodeInfo, place int) *ledger.Shortfall {
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
		_, shortfall := c.draft(name).Fit(name, c.Request)
		return shortfall
	}
	like := c.view.Like(name)
	if known, ok := c.found.Load(like); ok {
		return known.(*ledger.Shortfall)
	}
	_, shortfall := c.draft(name).Fit(name, c.Request)
	c.found.Store(like, shortfall)
	return shortfall
}

// draft is the ledger as the cycle imagines it when it asks the node. The caller holds the
// slot cache's lock.
func (c *Cycle) draft(node string) *ledger.Draft {
	draft := c.base
	if !c.group.empty() {
		draft = c.whole.draftOf(c)
	}
	draft = draft.Fork()
	for _, uid := range slices.Sorted(maps.Keys(c.expected)) {
		draft.Reserve(node, c.expected[uid])
	}
	return draft
}

// KubecriAway is kubecripods.Away of the node, which has the place: it is not looked for again among the node's pods
// until the node or these change.
func (c *Cycle) KubecriAway(node fwk.NodeInfo, place int) bool {
	if place == NoPlace {
		return kubecripods.Away(node)
	}
	there := &c.snapshot.kubecri[place]
	if there.Load() == node.GetGeneration() {
		return false
	}
	away := kubecripods.Away(node)
	if !away {
		there.Store(node.GetGeneration())
	}
	return away
}

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
	c.imagine(c.base.Release, uid)
}

// imagine changes the base. No draft that was made of it may be in use.
func (c *Cycle) imagine(change func(uid string), uid string) {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	change(uid)
	c.whole = &whole{}
}

// Imagine imagines a pod on the node that the cycle asks next: one that was imagined away, or
// a nominated one, which has no slots yet. It fails when so much was searched that nobody can tell
// any more whether a pod that was imagined away may stay: it must not be evicted for that.
func (c *Cycle) Imagine(pod *v1.Pod) error {
	uid, bound := string(pod.UID), pod.Spec.NodeName != ""
	if bound && c.Request.Budget.Spent() {
		return errors.New("the search for pods to preempt was given up: it took too long to find slots")
	}
	if c.released[uid] {
		delete(c.released, uid)
		c.imagine(c.base.Return, uid)
		return nil
	}
	if bound || c.cache.Holds(uid) {
		return nil // what a bound pod has is in the ledger, also if nodes chose it
	}
	req, err := c.cache.RequestOf(pod)
	if err != nil || req == nil {
		return nil // it will never get slots
	}
	expected := *req
	expected.Budget = c.Request.Budget
	c.expected[uid] = &expected
	return nil
}
