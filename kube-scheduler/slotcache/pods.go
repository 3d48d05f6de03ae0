package slotcache

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// SetPod follows a pod from waiting to bound to ended. One that is deleted before it is bound, and stays for its
// finalizers, is not bound any more.
func (b *Cache) SetPod(pod *v1.Pod) {
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed,
		pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
		b.DeletePod(pod)
	case pod.Spec.NodeName == "":
		b.await(pod)
	case slotrequest.Any(pod): // others hold none, whatever their annotations say
		b.observe(pod)
	}
}

// await remembers an unbound pod that asks for slots.
func (b *Cache) await(pod *v1.Pod) {
	req, err := b.RequestOf(pod)
	if err != nil || req == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(pod, req)
	n := b.nominations[string(pod.UID)]
	if n != nil && n.timer == nil && apiequality.Semantic.DeepEqual(n.byOther.Status, pod.Status) {
		return // nothing could be reserved for it, and what its author writes does not change that
	}
	b.followNomination(pod, req)
}

// Expect remembers a pod that is about to be tried, should it be tried before
// the slot cache's own handler has seen it: events from now on have it tried again. It
// returns the pod's wait, nil when the pod is gone.
func (b *Cache) Expect(pods corelisters.PodLister, pod *v1.Pod, req *ledger.Request) *waitreason.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A pod that the informer has deleted would never be forgotten again.
	live, err := pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || live.UID != pod.UID || live.Spec.NodeName != "" || live.DeletionTimestamp != nil {
		return nil
	}
	w := b.enter(live, req)
	b.Queue.Try(pod.UID)
	w.Try(b.clock.Now())
	return w.Record
}

// enter puts a pod on the waiting list. The caller holds mu.
func (b *Cache) enter(pod *v1.Pod, req *ledger.Request) *Waiting {
	w, waits := b.Queue.Get(pod.UID)
	if !waits {
		w = &Waiting{waitreason.NewRecord(b.clock.Now()), req}
	}
	b.Queue.Add(pod, w, slotrequest.Resources(req)...)
	return w
}

func (b *Cache) observe(pod *v1.Pod) {
	logger := klog.LoggerWithValues(b.logger, "pod", klog.KObj(pod), "podUID", pod.UID, "node", pod.Spec.NodeName)
	settled := false // the first assignment seen stays
	b.Read(func(l *ledger.Ledger) { settled = pod.DeletionTimestamp == nil && l.Bound(string(pod.UID)) })
	if settled {
		return
	}
	a, err := assignment.Held(pod)
	if err != nil {
		logger.Error(err, "A bound pod's assignment cannot be used, or not all of it; the pod does not hold those slots")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w, waited := b.Queue.Get(pod.UID)
	if waited {
		w.Spent(func(reason string, spent time.Duration) {
			waitingSeconds.WithLabelValues(reason).Observe(spent.Seconds())
		})
	}
	b.Queue.Delete(pod.UID)
	if pod.Status.Phase == v1.PodPending && len(a) == 0 && b.awaitsClaims(pod, waited) {
		return
	}
	b.clearNomination(string(pod.UID))
	if b.ledger.Holds(string(pod.UID)) == nil {
		b.taken(a)
	}
	found, event := b.ledger.Observe(slotrequest.PodOf(pod), pod.Spec.NodeName, a)
	for _, c := range found {
		conflicts.Inc()
		logger.Error(nil, "Two pods are assigned the same slot", "slot", c.Slot.String(), "holder", c.Holder.String(), "holderUID", c.Holder.UID)
	}
	b.record(event)
	if pod.DeletionTimestamp != nil && b.ledger.SetTerminating(string(pod.UID)) { // its status may change many times yet
		for _, n := range b.withoutSlots(b.ledger.Holds(string(pod.UID))...) {
			b.followNomination(n.byOther, n.req)
		}
	}
}

// DeletePod follows the end of a pod.
func (b *Cache) DeletePod(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Queue.Delete(pod.UID)
	b.clearNomination(string(pod.UID))
	b.tellReleased(pod, "Released slots")
	held := b.ledger.Holds(string(pod.UID))
	b.record(b.ledger.Remove(string(pod.UID)))
	if len(held) == 0 {
		return
	}
	for _, n := range b.withoutSlots(held...) { // what the pod had may have gone to another
		b.Queue.RetryNow(n.byOther.UID)
	}
}

// Assume picks slots for the request on the node and makes the pod hold them: those that it is to have,
// where they are free, and else others; nil for any. The Shortfall says that they are gone since they were looked for.
func (b *Cache) Assume(req *ledger.Request, node string, strategy ledger.Strategy, chosen ledger.Assignment) (
	a ledger.Assignment, shortfall *ledger.Shortfall, err error) {
	start := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if a = chosen; a == nil || !b.ledger.FreeFor(req.Pod, a) {
		a, shortfall = b.ledger.Draft(strategy, req.Pod).Fit(node, req)
	}
	result := "taken"
	if shortfall != nil {
		result = "short"
	}
	resolutionDuration.WithLabelValues(result).Observe(b.clock.Since(start).Seconds())
	if shortfall != nil {
		return nil, shortfall, nil
	}
	nominated := b.ledger.Nominated(req.UID) != ""
	event, err := b.ledger.Assume(req.Pod, node, a)
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
	b.Queue.Reserved(types.UID(req.UID))
	return a, nil, nil
}

// Forget gives an assumed pod's slots back, unless it turned out to be bound.
func (b *Cache) Forget(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := string(pod.UID)
	if !b.ledger.Bound(uid) {
		b.tellReleased(pod, "Released slots of a pod that was not bound")
	}
	b.gaveBack(pod.UID, b.ledger.Forget(uid))
	if u := b.unclaimed[uid]; u != nil && !u.bound {
		b.endNomination(pod)
	}
}

// Holds reports whether the pod has slots.
func (b *Cache) Holds(uid string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Holds(uid) != nil
}

// Configuration is that of the resource, itself or of its Instance; nil for none.
func (b *Cache) Configuration(resource string) *akriv0.Configuration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ledger.Configuration(resource)
}
