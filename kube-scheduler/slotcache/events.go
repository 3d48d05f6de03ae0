package slotcache

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/types/slot"
)

// record has the pods tried that an event of the ledger may help. The caller holds mu.
func (b *Cache) record(event ledger.Event) { b.gaveBack("", event) }

// gaveBack is record for what the pod gave back that it had reserved or was nominated for. Pods are
// tried, too, that lost what they were nominated for, or may take all of it now, but for this one. It
// notes which Configurations are in force. The caller holds mu.
func (b *Cache) gaveBack(pod types.UID, event ledger.Event) {
	b.changed.Store(true)
	b.Queue.GaveBack(pod, requeue.Event{Freed: event.Freed, Preemptible: b.byResource(event.Preemptible)})
	for _, uid := range event.Displaced {
		b.Queue.RetryNow(types.UID(uid))
	}
	for _, resource := range event.Freed {
		for _, uid := range b.ledger.ReadyFor(resource) {
			if uid != string(pod) && b.nominations[uid] != nil {
				b.Queue.RetryNow(types.UID(uid))
			}
		}
	}
	for _, name := range event.Owners {
		b.noteKind(name)
	}
}

// byResource are the slots by the resources that pods ask for them by. The caller holds mu.
func (b *Cache) byResource(slots []slot.Name) map[string][]slot.Name {
	by := map[string][]slot.Name{}
	for _, s := range slots {
		for _, resource := range b.ledger.Resources(s.Instance) {
			by[resource] = append(by[resource], s)
		}
	}
	return by
}

// taken tells the queue that a pod has got slots that were free, or is nominated for
// them. The caller holds mu.
func (b *Cache) taken(a ledger.Assignment) {
	for resource, slots := range b.byResource(a.Slots()) {
		b.Queue.Taken(resource, slots...)
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
