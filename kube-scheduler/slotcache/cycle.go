package slotcache

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// Cycle is what one scheduling cycle asks of the cache: whether nodes of the scheduler's
// snapshot have what a pod requests. Its methods may be called concurrently, but for
// ImagineAway and Imagine.
type Cycle struct {
	Request *ledger.Request

	cache *Cache
	pod   *v1.Pod
	// feasibility is the request for the nodes of the snapshot.
	feasibility *ledger.Feasibility
	snapshot    *snapshot
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
	c := &Cycle{Request: req, cache: b, pod: pod, released: map[string]bool{}, expected: map[string]*ledger.Request{},
		group: group, draftOfGroup: &groupDraft{}}
	amounts := b.Advertisable(pod)
	names := slices.Sorted(maps.Keys(amounts))
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.snapshot.of(nodes) {
		b.snapshot = newSnapshot(nodes)
	}
	c.snapshot = b.snapshot
	c.feasibility = b.ledger.Feasibility(req, c.snapshot.index)
	for _, name := range names {
		c.amounts = append(c.amounts, amount{name, amounts[name], c.snapshot.freeAllocatableOf(name)})
	}
	return c
}

// Clone is a Cycle in which other pods can be imagined.
func (c *Cycle) Clone() *Cycle {
	clone := *c
	clone.released, clone.expected, clone.draftOfGroup = maps.Clone(c.released), maps.Clone(c.expected), &groupDraft{}
	return &clone
}

// Fit asks whether the node has slots for the pod. It returns what it is short of, nil if it
// has them.
func (c *Cycle) Fit(node fwk.NodeInfo, strategy ledger.Strategy) *ledger.Shortfall {
	name, place := node.Node().Name, c.snapshot.place(node)
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	if len(c.released) == 0 && len(c.expected) == 0 {
		if shortfall, sure := c.feasibility.Fits(name, place); sure && (shortfall != nil || c.group.empty()) {
			return shortfall
		}
	}
	_, shortfall := c.draft(name, strategy).Fit(name, c.Request)
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

// Unadvertised reports why the node's kubelet would refuse the pod, although the ledger has
// slots for it, nil if it would not: a device is in a DeviceSlice a moment before its node
// advertises it, and pods that did not come through this scheduler count there too.
// (kubelet lifecycle/predicate.go)
func (c *Cycle) Unadvertised(node fwk.NodeInfo) *fwk.Status {
	if c.cache.ChoosesSlots(node.Node().Name) {
		return lacks(c.pod, node)
	}
	generation, place := node.GetGeneration(), c.snapshot.place(node)
	if c.group != nil {
		place = ledger.NotInSnapshot // a node has its generation still when a pod of a group is put on it
	}
	for i := range c.amounts {
		w := &c.amounts[i]
		if place != ledger.NotInSnapshot && w.freeAllocatable.enough(place, generation, w.n) {
			continue
		}
		total, used := node.GetAllocatable().GetScalarResources()[w.name], node.GetRequested().GetScalarResources()[w.name]
		if place != ledger.NotInSnapshot {
			w.freeAllocatable.remember(place, generation, total-used)
		}
		if code := admits(total, used, w.n); code != fwk.Success {
			return fwk.NewStatus(code, fmt.Sprintf("node(s) not advertising enough %s: %d of %d in use, %d requested", w.name, used, total, w.n))
		}
	}
	return nil
}

// ScoreInput is how well the node can serve the pod.
func (c *Cycle) ScoreInput(node fwk.NodeInfo) ledger.ScoreInput {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	return c.feasibility.ScoreInput(node.Node().Name, c.snapshot.place(node))
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
	req, err := slotrequest.Of(pod)
	if err != nil || req == nil {
		return // it will never get slots
	}
	c.expected[uid] = req
}
