package claims

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// work handles one Instance from the queue; false means that the queue is shut.
func (c *Claims) work(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	defer utilruntime.HandleCrashWithContext(ctx)
	err := c.reconcile(ctx, name)
	c.config.Metrics.Reconciled(err)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot bring claims up to date, trying again", "instance", name)
		}
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcile makes the claims on an Instance agree with the containers.
func (c *Claims) reconcile(ctx context.Context, name string) error {
	if !c.book.isKnown() {
		return nil // the first resync asks for it again
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	found := c.store.named(name)
	if len(found) == 0 {
		c.book.settled(slices.Collect(maps.Keys(c.book.uses(name).freed)))
	}
	var settled []slot.Name
	for i, in := range found {
		owner := i == 0
		var d decision
		start := time.Now()
		_, err := c.modify(ctx, in, true, func(in *akriv0.Instance) (edit, error) {
			uses := c.book.uses(name)
			uses.due = c.due(name)
			d = decide(in, owner, c.config.Node, uses, c.memory.orphansOf(key(in)), c.config.Clock.Now(), c.config.Grace)
			return d.edit, nil
		})
		c.trace(ctx, name, start, d.edit, err)
		if err != nil {
			return err
		}
		c.config.Metrics.ClaimsReleased(d.edit.releases())
		if len(d.edit) > 0 {
			klog.FromContext(ctx).V(2).Info("Brought claims up to date", "instance", klog.KObj(in), "slots", slices.Sorted(maps.Keys(d.edit)))
		}
		c.memory.setOrphans(key(in), d.orphans)
		if d.recheck > 0 {
			c.queue.AddAfter(name, d.recheck)
		}
		if owner {
			settled = d.settled
			c.report(ctx, name, d.lost)
		}
	}
	c.book.settled(settled)
	return nil
}

// trace makes a span of claims that were written or could not be; most often there
// was nothing to do.
func (c *Claims) trace(ctx context.Context, instance string, start time.Time, e edit, err error) {
	if len(e) == 0 && err == nil {
		return
	}
	name := "ReconcileClaims"
	if e.releases() == len(e) {
		name = "ReleaseClaims"
	}
	span := c.config.Tracer.Began(ctx, name, start)
	if span.Recorded() {
		span.Instance(instance)
		span.Slots(slices.Sorted(maps.Keys(e)))
	}
	span.End(err)
}

// report tells of slots that a container here uses and somebody else has claimed:
// once each, for nothing can be done about it here.
func (c *Claims) report(ctx context.Context, instance string, lost []loss) {
	for _, l := range c.memory.unreported(instance, lost) {
		klog.FromContext(ctx).Error(nil, "A container uses a slot that is claimed by another", "slot", l.slot,
			"pod", klog.KRef(l.holder.pod.Namespace, l.holder.pod.Name), "container", l.holder.container, "deviceUsage", l.value)
		pod := &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1",
			Namespace: l.holder.pod.Namespace, Name: l.holder.pod.Name, UID: types.UID(l.holder.pod.UID)}
		c.config.Events.Eventf(pod, corev1.EventTypeWarning, "SlotLost",
			"Container %q uses slot %s, which is now claimed by %s. Both use the device at once: delete one of the pods.",
			l.holder.container, l.slot, describe(l.value))
	}
}

// memory is what reconciling remembers from one time to the next.
type memory struct {
	mu       sync.Mutex
	orphans  map[types.NamespacedName]map[orphan]time.Time
	reported map[string]map[loss]bool // by Instance name
}

func newMemory() *memory {
	return &memory{orphans: map[types.NamespacedName]map[orphan]time.Time{}, reported: map[string]map[loss]bool{}}
}

// orphansOf returns a map that is not changed any more.
func (m *memory) orphansOf(in types.NamespacedName) map[orphan]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.orphans[in]
}

func (m *memory) setOrphans(in types.NamespacedName, orphans map[orphan]time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(orphans) == 0 {
		delete(m.orphans, in)
		return
	}
	m.orphans[in] = orphans
}

// unreported returns the losses that are new, and forgets those that are over.
func (m *memory) unreported(instance string, lost []loss) []loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	var fresh []loss
	now := make(map[loss]bool, len(lost))
	for _, l := range lost {
		if !m.reported[instance][l] {
			fresh = append(fresh, l)
		}
		now[l] = true
	}
	if len(now) == 0 {
		delete(m.reported, instance)
	} else {
		m.reported[instance] = now
	}
	return fresh
}
