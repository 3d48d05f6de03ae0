package slotcache

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/types/slot"
)

// record has the pods tried that an event of the ledger may help. The caller holds mu.
func (b *Cache) record(event ledger.Event) {
	b.Queue.Record(b.eventOf(event))
	b.follow(event, "")
}

// gaveBack is record for what the pod gave back that it had reserved or was nominated for.
// The caller holds mu.
func (b *Cache) gaveBack(pod types.UID, event ledger.Event) {
	b.Queue.GaveBack(pod, b.eventOf(event))
	b.follow(event, string(pod))
}

// follow has pods tried that lost what they were nominated for, or may take all of it now,
// but for the one that gave it back. It notes which Configurations are in force. The caller holds mu.
func (b *Cache) follow(event ledger.Event, giver string) {
	b.changed.Store(true)
	for _, uid := range event.Displaced {
		b.Queue.RetryNow(types.UID(uid))
	}
	for _, resource := range event.Freed {
		for _, uid := range b.ledger.ReadyFor(resource) {
			if uid != giver && b.nominations[uid] != nil {
				b.Queue.RetryNow(types.UID(uid))
			}
		}
	}
	for _, name := range event.Owners {
		b.noteKind(name)
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

// possible tells which pods could have slots of the resource: any, while there are free ones.
func (b *Cache) possible(resource string) func(*Waiting) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.ledger.Free(resource) == 0 {
		return nil
	}
	return func(*Waiting) bool { return true }
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
