package configurationresources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// setPod follows a pod from waiting to bound to ended.
func (b *slotCache) setPod(pod *v1.Pod) {
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		b.deletePod(pod)
	case pod.Spec.NodeName == "":
		b.await(pod)
	case requestsSlots(pod): // others hold none, whatever their annotations say
		b.observe(pod)
	}
}

// await remembers an unbound pod that asks for slots.
func (b *slotCache) await(pod *v1.Pod) {
	req, err := requestOf(pod)
	if err != nil || req == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(pod, req)
	b.followNomination(pod, req)
}

// expect remembers a pod that is about to be tried, should it be tried before
// the slot cache's own handler has seen it: events from now on have it tried again. It
// returns the pod's wait, nil when the pod is gone.
func (b *slotCache) expect(pods corelisters.PodLister, pod *v1.Pod) *podWait {
	req, err := requestOf(pod)
	if err != nil || req == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// A pod that the informer has deleted would never be forgotten again.
	live, err := pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || live.UID != pod.UID || live.Spec.NodeName != "" {
		return nil
	}
	w := b.enter(live, req)
	b.queue.Try(pod.UID)
	b.refused.Delete(pod.UID)
	w.try(b.clock.Now())
	return w
}

// enter puts a pod on the waiting list. The caller holds mu.
func (b *slotCache) enter(pod *v1.Pod, req *ledger.Request) *podWait {
	w, waits := b.queue.Get(pod.UID)
	if !waits {
		w = &podWait{since: b.clock.Now()}
	}
	b.queue.Add(pod, w, resourcesOf(req)...)
	return w
}

func (b *slotCache) observe(pod *v1.Pod) {
	logger := klog.LoggerWithValues(b.logger, "pod", klog.KObj(pod), "podUID", pod.UID, "node", pod.Spec.NodeName)
	if pod.DeletionTimestamp == nil && b.settled(string(pod.UID)) {
		return // the first assignment seen stays
	}
	a, err := assigned(pod)
	if err != nil {
		logger.Error(err, "A bound pod's assignment cannot be used, or not all of it; the pod does not hold those slots")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observeWait(pod.UID)
	b.unwait(pod)
	b.denominate(string(pod.UID))
	if b.ledger.Holds(string(pod.UID)) == nil {
		b.taken(a)
	}
	found, event := b.ledger.Observe(podKey(pod), pod.Spec.NodeName, a)
	for _, c := range found {
		conflicts.Inc()
		logger.Error(nil, "Two pods are assigned the same slot", "slot", c.Slot.String(), "holder", c.Holder.String(), "holderUID", c.Holder.UID)
		b.doubleAllocated.Insert(c.Slot)
	}
	b.evictLosersIfLeading()
	b.record(event)
	if pod.DeletionTimestamp != nil && b.ledger.SetTerminating(string(pod.UID)) { // its status may change many times yet
		b.followNominations(pod.Spec.NodeName)
	}
}

func (b *slotCache) deletePod(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwait(pod)
	b.denominate(string(pod.UID))
	b.tellReleased(pod, "Released slots")
	b.record(b.ledger.Remove(string(pod.UID)))
	if pod.Spec.NodeName != "" {
		b.victimGone(pod.Spec.NodeName)
	}
}

// unwait forgets a pod that waits no longer. The caller holds mu.
func (b *slotCache) unwait(pod *v1.Pod) {
	b.queue.Delete(pod.UID)
	b.refused.Delete(pod.UID)
}

// prepare prepares the cycle to ask the scheduler's nodes.
func (b *slotCache) prepare(c *cycle, nodes []fwk.NodeInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.snapshot.of(nodes) {
		b.snapshot = newSnapshot(nodes)
	}
	c.snapshot = b.snapshot
	c.feasibility = b.ledger.Feasibility(c.req, c.snapshot.index)
	for i := range c.amounts {
		c.amounts[i].freeAllocatable = c.snapshot.freeAllocatableOf(c.amounts[i].name)
	}
}

// fit asks whether the node, which may have a place on the snapshot, has slots for
// the cycle's pod.
func (b *slotCache) fit(c *cycle, node string, place int, strategy ledger.Strategy) *ledger.Shortfall {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if len(c.released) == 0 && len(c.expected) == 0 {
		if shortfall, sure := c.feasibility.Fits(node, place); sure {
			return shortfall
		}
	}
	_, shortfall := c.draft(b.ledger, node, strategy).Fit(node, c.req)
	return shortfall
}

// assume picks the pod's slots on the node and makes it hold them.
func (b *slotCache) assume(c *cycle, node string, strategy ledger.Strategy) (ledger.Assignment, *ledger.Shortfall, error) {
	start := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	a, shortfall := b.ledger.Draft(strategy, c.req.Pod).Fit(node, c.req)
	observeResolution(b.clock.Since(start), shortfall != nil)
	if shortfall != nil {
		return nil, shortfall, nil
	}
	nominated := b.ledger.Nominated(c.req.UID) != ""
	event, err := b.ledger.Assume(c.req.Pod, node, a)
	if err != nil {
		return nil, nil, err
	}
	b.record(event)
	if nominated {
		// More important pods were refused while it waited for its victims to go.
		b.record(ledger.Event{Preemptible: a.Slots()})
	} else {
		b.taken(a)
	}
	b.queue.Reserved(types.UID(c.req.UID))
	return a, nil, nil
}

// check reports why the pod should not be bound with the slots that were assumed.
func (b *slotCache) check(uid string) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Check(uid)
}

// forget gives an assumed pod's slots back, unless it turned out to be bound.
func (b *slotCache) forget(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := string(pod.UID)
	if !b.ledger.Bound(uid) {
		b.tellReleased(pod, "Released slots of a pod that was not bound")
	}
	b.gaveBack(pod, b.ledger.Forget(uid))
}

// settled reports whether the pod was observed bound with slots before.
func (b *slotCache) settled(uid string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Bound(uid)
}

func (b *slotCache) holds(uid string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Holds(uid) != nil
}

// reach returns the nodes that reach devices for all of the pod's requests, nil
// when they are more than limit.
func (b *slotCache) reach(req *ledger.Request, limit int) ([]string, *ledger.Shortfall) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Reach(req, limit)
}

// scoreInput is how well the node can serve the cycle's pod.
func (b *slotCache) scoreInput(c *cycle, node string, place int) ledger.ScoreInput {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return c.feasibility.ScoreInput(node, place)
}
