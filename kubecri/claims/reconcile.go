package claims

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// work handles one slot from the queue; false means that the queue is shut.
func (c *Claims) work(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	defer utilruntime.HandleCrashWithContext(ctx)
	err := c.reconcile(ctx, name)
	if c.queue.Len() == 0 { // once for many slots: it looks at all
		c.noteHeld()
	}
	c.config.Metrics.Reconciled(err)
	if err != nil {
		if ctx.Err() == nil && c.queue.NumRequeues(name) == 0 { // once until it is done
			klog.FromContext(ctx).Error(err, "Cannot bring a claim up to date, trying again", "slot", name)
		}
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// reconcileAll reconciles slots now, whether or not they are in the queue.
func (c *Claims) reconcileAll(ctx context.Context, names []slot.Name) error {
	errs := make([]error, len(names))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), workers, len(names),
		func(i int) { errs[i] = c.reconcile(ctx, names[i]) })
	return errors.Join(errs...)
}

// reconcile makes the claim of a slot agree with the containers.
func (c *Claims) reconcile(ctx context.Context, name slot.Name) error {
	if !c.isKnown() {
		return nil // the first resync asks for it again
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	unlock, err := c.store.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	v := view{slot: name, claim: c.store.get(name), use: c.containers.use(name), entitled: c.entitlements(name), capacity: c.capacity(name)}
	if v.claim == nil || !v.claim.Spec.ByDRA() {
		c.askKept(&v)
	} else if !c.isPrepared(v.claim.Spec.ResourceClaim) {
		v.entitled = append(v.entitled, useOf(v.claim))
	}
	c.mu.Lock()
	known := c.memory[name]
	c.mu.Unlock()
	d := decide(v, known, c.config.Clock.Now(), c.config.Grace)
	start := time.Now()
	err = c.apply(ctx, v, &d)
	c.trace(ctx, name, start, d, err)
	if err != nil {
		return err
	}
	c.remember(name, d.memory)
	if d.recheck > 0 {
		c.queue.AddAfter(name, d.recheck)
	}
	if d.settled {
		c.containers.settled(name)
	}
	return nil
}

// apply writes what was decided.
func (c *Claims) apply(ctx context.Context, v view, d *decision) error {
	logger := klog.FromContext(ctx)
	if d.remove {
		if err := c.release(ctx, v.slot, v.claim); err != nil {
			return err
		}
		c.config.Metrics.ClaimsReleased(1)
		logger.Info("Released a slot", holderOf(v.claim)...)
	}
	if d.remake == nil {
		return nil
	}
	owner, err := c.owner()
	if err != nil {
		return err
	}
	spec := c.specOf(d.remake, v.slot)
	spec.MadeAgain = true
	wrote, other, err := c.claim(ctx, v.slot, spec, owner)
	switch {
	case err != nil:
		return err
	case other != nil:
		return c.lost(ctx, v.slot, d, other)
	case wrote:
		d.memory = memory{remade: c.config.Clock.Now()}
		logger.Info("Claimed a slot again, which is in use",
			append([]any{"slot", v.slot.String()}, d.remake.logged()...)...)
	}
	return nil
}

// holderOf is a claim and its holder as the log has them.
func holderOf(c *v1alpha1.SlotClaim) []any {
	values := []any{"slot", c.Name}
	if claim := c.Spec.ResourceClaim; claim != nil {
		return append(values, "resourceClaim", klog.KRef(claim.Namespace, claim.Name))
	}
	if c.Spec.Pod == nil {
		return append(values, "holder", c.Spec.Holder)
	}
	values = append(values, "pod", klog.KRef(c.Spec.Pod.Namespace, c.Spec.Pod.Name))
	if c.Spec.Container != "" {
		values = append(values, "container", c.Spec.Container)
	}
	return values
}

// lost handles a slot that is used here and that another has claimed. A claim of this
// node is dealt with when the informer shows it. A node that has promised to stop the container does
// so now; otherwise nothing can be done about it here.
func (c *Claims) lost(ctx context.Context, name slot.Name, d *decision, other *v1alpha1.SlotClaim) error {
	if other.Spec.NodeName == c.config.Node && !other.Spec.ByDRA() {
		return nil
	}
	p, promised := c.fence.promised(name) // by a container alone
	if !promised || c.onlyHere(name) {
		c.report(ctx, name, d, other)
		return nil
	}
	stopped, err := c.stopLost(context.WithoutCancel(ctx), name)
	for _, u := range stopped {
		klog.FromContext(ctx).Info("Stopped a container: its slot was released while kubecri was not heard of, and is another's", "slot", name,
			"pod", klog.KRef(u.pod.Namespace, u.pod.Name), "container", u.name, "releaseUnreachableAfter", p.after(),
			"claimedBy", other.HeldBy())
		c.config.Events.Eventf(u.pod.Reference(), corev1.EventTypeWarning, "SlotReleased",
			"Container %q was stopped: its slot %s was released, as its Configuration's "+
				"releaseUnreachableAfter (%s) allows "+
				"while kubecri of the node is not heard of, and is now claimed by %s. The container is created again "+
				"when the slot is free; delete the pod to have it placed elsewhere.", u.name, name, p.after(),
			other.HeldBy())
	}
	if err != nil {
		c.report(ctx, name, d, other)
		c.remember(name, d.memory)
	}
	return err
}

// report tells of a slot that is used here and that another has claimed: once. Where this
// node alone has the device, the slot is not lost, and its claim is made as soon as the other's is
// deleted.
func (c *Claims) report(ctx context.Context, name slot.Name, d *decision, other *v1alpha1.SlotClaim) {
	onlyHere := other.Spec.NodeName != c.config.Node && c.onlyHere(name)
	if onlyHere {
		d.recheck = remakeInterval
	}
	if d.memory.lost == other.UID {
		return
	}
	d.memory.lost = other.UID
	by := d.remake
	logger := klog.FromContext(ctx).WithValues(by.logged()...)
	if onlyHere {
		logger.Error(nil, "Another node claims a slot of a device that this node alone has; the claim is not believed",
			"slot", name, "claimedBy", other.HeldBy())
		c.config.Events.Eventf(by.reference(), corev1.EventTypeWarning, "ClaimNotBelieved",
			"Slot %s, which %s uses, is also claimed by %s. "+
				"That node cannot reach the device, and the controller deletes the claim: find out who has the "+
				"credential of kubecri there.", name, by, other.HeldBy())
		return
	}
	c.config.Metrics.SlotLost()
	logger.Error(nil, "A slot that is in use is claimed by another", "slot", name, "claimedBy", other.HeldBy())
	c.config.Events.Eventf(by.reference(), corev1.EventTypeWarning, "SlotLost",
		"Slot %s, which %s uses, is now claimed by %s. Both use the device at once: delete one of the pods.",
		name, by, other.HeldBy())
}

// trace makes a span of a claim that was written or could not be; most often there
// was nothing to do.
func (c *Claims) trace(ctx context.Context, name slot.Name, start time.Time, d decision, err error) {
	if !d.remove && d.remake == nil {
		return
	}
	what := "ReconcileClaims"
	if d.remake == nil {
		what = "ReleaseClaims"
	}
	span := c.config.Tracer.Began(ctx, what, start)
	if span.Recorded() {
		span.Instance(name.Instance)
		span.Slots([]string{name.String()})
	}
	span.End(err)
}

// capacity is the number of the Instance's slots, 0 while no claim can be made.
func (c *Claims) capacity(name slot.Name) int {
	configuration, _ := slot.SplitInstance(name.Instance)
	owner := Owner(c.configurations(), configuration)
	if _, err := c.owner(); err != nil || owner == nil {
		return 0
	}
	return owner.Spec.Slots()
}

func (c *Claims) remember(name slot.Name, m memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m == (memory{}) {
		delete(c.memory, name)
		return
	}
	c.memory[name] = m
}
