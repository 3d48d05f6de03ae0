package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Taken is the hold of a container that is being created on its slots. Exactly
// one of Created and Failed is to be called.
type Taken struct {
	claims *Claims
	user   *user
	wrote  []slot.Name // claims that were not the pod's before
}

// Take claims the slots of a container, all or none, before it is created. It
// returns a *Refusal for what the container may not have, and another error for
// what could not be found out or written; either is worth the kubelet's retry.
// It needs no API call when the pod has the claims already. After an error that is no refusal
// those that were made, answered or not, stay for the pod's next try as long as the pod is
// entitled to use the slots.
func (c *Claims) Take(ctx context.Context, r Request) (*Taken, error) {
	uses, err := r.verify()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := c.ready(ctx, &r); err != nil {
		return nil, err
	}
	t := &Taken{claims: c, user: &user{sandbox: r.Sandbox, pod: r.Pod, name: r.Container, slots: uses}}
	if err := c.containers.begin(t.user); err != nil {
		c.Resync() // should the other container have gone behind our back
		return nil, err
	}
	wrote, errs := make([]bool, len(r.Grants)), make([]error, len(r.Grants))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), workers, len(r.Grants), func(i int) {
		wrote[i], errs[i] = c.take(ctx, &r, r.Grants[i])
	})
	for i, g := range r.Grants {
		if wrote[i] {
			t.wrote = append(t.wrote, g.Slot)
		}
	}
	c.config.Metrics.ClaimsTaken(len(t.wrote))
	if err := cmp.Or(errs...); err != nil {
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) {
			t.wrote = nil // the next try goes on from there: hundreds of slots take longer than a runtime waits
		}
		t.release()
		return nil, err
	}
	if len(t.wrote) > 0 {
		names := make([]string, 0, len(t.wrote))
		for _, name := range t.wrote {
			names = append(names, name.String())
		}
		klog.FromContext(ctx).Info("Claimed slots", "pod", klog.KRef(r.Pod.Namespace, r.Pod.Name), "container", r.Container, "slots", names)
	}
	return t, nil
}

// ready waits until it is known what containers and claims there are. The claims of a
// container that the checkpoint has are known.
func (c *Claims) ready(ctx context.Context, r *Request) error {
	select {
	case <-c.known:
	case <-ctx.Done():
		return fmt.Errorf("the runtime has not yet said which containers use slots: %w", cmp.Or(c.ResyncError(), ctx.Err()))
	}
	if c.savedAll(r) {
		return nil
	}
	select {
	case <-c.synced:
	case <-ctx.Done():
		return fmt.Errorf("the API server has not yet said which Configurations and SlotClaims there are: %w", ctx.Err())
	}
	return nil
}

// take claims one slot; wrote says that it was not the pod's before.
func (c *Claims) take(ctx context.Context, r *Request, g assignment.Grant) (wrote bool, err error) {
	unlock, err := c.store.lock(ctx, g.Slot)
	if err != nil {
		return false, err
	}
	defer unlock()
	spec := specOf(c.config.Node, r.Pod, r.Container, levelOf(g))
	if c.savedHold(g.Slot, spec) {
		return false, nil
	}
	there := c.store.get(g.Slot)
	holds := same(there, spec)
	if err := check(g, c.configurations(), holds); err != nil || holds && c.stands(g.Slot, there) {
		return false, err
	}
	labelsOf := func() (map[string]string, error) { return c.config.Namespaces(ctx, r.Pod.Namespace) }
	if err := checkNamespace(g, c.configurations(), r.Pod.Namespace, labelsOf); err != nil {
		return false, err
	}
	wrote, other, err := c.hold(ctx, g.Slot, spec)
	switch {
	case errors.Is(err, ErrNotBelieved):
		return false, nil
	case other != nil:
		return false, refuseHeld(g.Slot, other)
	}
	return wrote, err
}

// stands reports whether it is certain that nobody has released the claim, or is about to: neither the
// controller, nor this process by a deletion that was not answered.
func (c *Claims) stands(name slot.Name, claim *v1alpha1.SlotClaim) bool {
	how, _ := c.store.going.Load(claim.UID)
	return how != mayBeGone && c.fence.stands(name, claim)
}

// ErrNotBelieved is the error of a claim in the way by another node, of a device that this node alone
// has: it counts for nobody, and the slot is held without a claim.
var ErrNotBelieved = errors.New("another node claims a slot of a device that this node alone has")

// hold claims a slot; other is the claim in the way.
func (c *Claims) hold(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec,
) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	owner, err := c.owner()
	if err != nil {
		return false, nil, err
	}
	if !spec.MadeAgain { // what is in use is claimed again at once, as other nodes do
		if err := c.believable(ctx); err != nil {
			return false, nil, fmt.Errorf("slot %s is not claimed yet: %w", name, err)
		}
	}
	wrote, other, err = c.claim(ctx, name, spec, owner)
	if (other != nil && other.Spec.NodeName != c.config.Node || errors.Is(err, ErrContested)) && c.onlyHere(name) {
		klog.FromContext(ctx).Error(err, "Another node claims a slot of a device that this node alone has; the claim is not believed",
			holderOf(v1alpha1.NewSlotClaim(name, spec, owner))...)
		return false, nil, ErrNotBelieved
	}
	return wrote, other, err
}

func (c *Claims) believable(ctx context.Context) error {
	if c.config.Believable == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, believableWait)
	defer cancel()
	return c.config.Believable(ctx)
}

// claim creates the claim of a slot, with what the node promises by it. A promise is in the
// checkpoint before its container exists: a process that starts while the API server is away has to
// know of it. While the checkpoint cannot be written, nothing is promised.
func (c *Claims) claim(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec, owner metav1.OwnerReference) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	configuration, _ := slot.SplitInstance(name.Instance)
	if c.CheckpointError() == nil && !spec.ByDRA() { // nobody here can stop a ResourceClaim's containers in time
		if spec.ReleaseUnreachableAfter, err = c.fence.promise(ctx, Owner(c.configurations(), configuration)); err != nil {
			return false, nil, err
		}
	}
	wrote, other, err = c.store.create(ctx, name, spec, owner, c.stands)
	made := c.store.get(name)
	if err != nil || other != nil || made == nil {
		return wrote, other, err
	}
	c.fence.saw(name, made)
	if !wrote || made.Spec.ReleaseUnreachableAfter == nil {
		return wrote, nil, nil
	}
	c.fenceSoon()
	if err := c.writeCheckpoint(); err != nil {
		return false, nil, errors.Join(fmt.Errorf("slot %s of container %q of pod %s/%s is not claimed: its Configuration has releaseUnreachableAfter, which has to be in the checkpoint %s. "+
			"Make that file writable; without it the slot is claimed at the next try, and is not released by time: %w",
			name, spec.Container, spec.Pod.Namespace, spec.Pod.Name, c.config.Checkpoint, err), c.release(ctx, name, made))
	}
	c.fence.made(name, made)
	return true, nil, nil
}

// release deletes this node's claim of the slot. The checkpoint does not have it by then, if it can be
// written: a process that starts while the API server is away takes what it has for the node's.
func (c *Claims) release(ctx context.Context, name slot.Name, claim *v1alpha1.SlotClaim) error {
	c.store.going.LoadOrStore(claim.UID, toGo)
	if c.config.Checkpoint != "" && c.isSynced() && !claim.Spec.ByDRA() {
		_ = c.writeCheckpoint() // CheckpointError says why not
	}
	if err := c.store.remove(ctx, name, claim.UID); err != nil {
		return err
	}
	c.fence.forget(name)
	return nil
}

// onlyHere reports whether the slot is of a device that is not shared and that this node
// sees: its Instance's hash is made of this node's name. No other node can use it, so
// another node's claim of it counts for nobody, and only keeps the name taken. The
// scheduler gave the slot to a pod of this node, and containers says that no other pod
// here uses it.
func (c *Claims) onlyHere(name slot.Name) bool {
	if c.config.Device == nil {
		return false
	}
	device, ok := c.config.Device(name.Instance)
	return ok && OnlyHere(c.config.Node, name.Instance, device)
}

// OnlyHere reports whether the Instance is of a device of the node that is not shared.
func OnlyHere(node, instance string, device discovery.Device) bool {
	_, hash := slot.SplitInstance(instance)
	return hash == slot.InstanceHash(device.ID, false, node, len(hash))
}

// Created says that the runtime has created the container.
func (t *Taken) Created(id string) {
	t.claims.containers.created(t.user, id)
	t.claims.fenceCreated(t.user)
	t.enqueue()
}

// Failed says that the runtime did not create the container, as err says. What
// Take claimed is released, unless another container of the pod uses it by now.
// When err leaves open whether the container exists, the runtime is asked first.
func (t *Taken) Failed(err error) {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		t.claims.containers.failed(t.user, nil) // reconciled, after grace
		t.claims.Resync()
		t.enqueue()
	default:
		t.release()
	}
}

func (t *Taken) release() {
	t.claims.containers.failed(t.user, t.wrote)
	t.enqueue()
}

// enqueue has all slots looked at: while the create was in flight, whatever else was
// to be done about them had to wait.
func (t *Taken) enqueue() {
	t.claims.enqueue(slices.Collect(maps.Keys(t.user.slots)))
}
