package configurationresources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
)

// wake has the pods tried that an event of the ledger may help. The caller holds mu.
func (b *book) wake(event ledger.Gain) {
	b.queue.Record(b.eventOf(event))
	b.retryNow(event.Displaced)
}

// gaveBack is wake for what the pod gave back that it had reserved or was nominated for.
// The caller holds mu.
func (b *book) gaveBack(pod *v1.Pod, event ledger.Gain) {
	b.queue.GaveBack(pod, b.eventOf(event))
	b.retryNow(event.Displaced)
}

// retryNow has pods tried. They lost what they were nominated for, or another has it.
func (b *book) retryNow(uids []string) {
	for _, uid := range uids {
		b.queue.RetryNow(types.UID(uid))
	}
}

// eventOf is an event of the ledger by resource. The caller holds mu.
func (b *book) eventOf(event ledger.Gain) requeue.Event {
	by := requeue.Event{Freed: event.Free}
	for _, s := range event.Held {
		above, ok := b.ledger.Price(s)
		if !ok {
			continue // nobody can preempt its holder by now, whose end will be an event
		}
		for _, resource := range b.ledger.Resources(s.Instance) {
			if lowest, known := by.Preemptible[resource]; !known || above+1 < lowest {
				if by.Preemptible == nil {
					by.Preemptible = map[string]int32{}
				}
				by.Preemptible[resource] = above + 1
			}
		}
	}
	return by
}

// taken tells the queue that the pod has got slots that were free, or is nominated for
// them. The caller holds mu.
func (b *book) taken(a ledger.Assignment, by ledger.Pod) {
	for _, s := range a.Slots() {
		for _, resource := range b.ledger.Resources(s.Instance) {
			b.queue.Taken(resource, by.Priority)
		}
	}
}

// possible tells which pods could have slots of the resource: any, while there are free
// ones, and those that are nominated for slots which are theirs to take.
func (b *book) possible(resource string) func(*v1.Pod, *podWait) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	free, ready := b.ledger.Free(resource) > 0, map[types.UID]bool{}
	for uid := range b.deadlines {
		if b.ledger.Ready(uid) {
			ready[types.UID(uid)] = true
		}
	}
	return func(pod *v1.Pod, _ *podWait) bool { return free || ready[pod.UID] }
}
