package slotcache

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/slot"
)

// record has the pods tried that an event of the ledger may help. The caller holds mu.
func (b *Cache) record(event ledger.Event) {
	b.Queue.Record(b.eventOf(event))
	b.retryNow(event.Displaced)
}

// gaveBack is record for what the pod gave back that it had reserved or was nominated for.
// The caller holds mu.
func (b *Cache) gaveBack(pod *v1.Pod, event ledger.Event) {
	b.Queue.GaveBack(pod, b.eventOf(event))
	b.retryNow(event.Displaced)
	for uid := range b.nominations { // it may be what another is nominated for
		if uid != string(pod.UID) && b.ledger.Ready(uid) {
			b.Queue.RetryNow(types.UID(uid))
		}
	}
}

// retryNow has pods tried. They lost what they were nominated for, or another has it.
func (b *Cache) retryNow(uids []string) {
	for _, uid := range uids {
		b.Queue.RetryNow(types.UID(uid))
	}
}

// eventOf is an event of the ledger by resource. The caller holds mu.
func (b *Cache) eventOf(event ledger.Event) requeue.Event {
	by := requeue.Event{Freed: event.Freed}
	for _, s := range event.Preemptible {
		for _, resource := range b.ledger.Resources(s.Instance) {
			if by.Preemptible == nil {
				by.Preemptible = map[string][]slot.Name{}
			}
			by.Preemptible[resource] = append(by.Preemptible[resource], s)
		}
	}
	return by
}

// taken tells the queue that a pod has got slots that were free, or is nominated for
// them. The caller holds mu.
func (b *Cache) taken(a ledger.Assignment) {
	for _, s := range a.Slots() {
		for _, resource := range b.ledger.Resources(s.Instance) {
			b.Queue.Taken(resource, s)
		}
	}
}

// possible tells which pods could have slots of the resource: any, while there are free
// ones, and those that are nominated for slots which are theirs to take.
func (b *Cache) possible(resource string) func(*v1.Pod, *waitreason.Record) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	free, ready := b.ledger.Free(resource) > 0, map[types.UID]bool{}
	for uid := range b.nominations {
		if b.ledger.Ready(uid) {
			ready[types.UID(uid)] = true
		}
	}
	return func(pod *v1.Pod, _ *waitreason.Record) bool { return free || ready[pod.UID] }
}

// minPreemptorPriority is the lowest priority with which a pod can preempt for one of the
// slots; false if none helps.
func (b *Cache) minPreemptorPriority(slots []slot.Name) (least int32, some bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range slots {
		if priority, ok := b.ledger.MinPreemptorPriority(s); ok && (!some || priority < least) {
			least, some = priority, true
		}
	}
	return least, some
}
