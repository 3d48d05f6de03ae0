package claims

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// has reports whether the slot has the claim, and it is certain that nobody releases it. The slot's lock is held.
func (c *Claims) has(name slot.Name, spec v1alpha1.SlotClaimSpec) bool {
	there := c.store.get(name)
	if !same(there, spec) || !c.stands(name, there) {
		return false
	}
	if _, going := c.store.going.LoadAndDelete(there.UID); going && c.config.Checkpoint != "" {
		_ = c.writeCheckpoint() // it stays, and the checkpoint may lack it; CheckpointError says why it does still
	}
	return true
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
		klog.FromContext(ctx).Error(err,
			"Another node claims a slot of a device that this node alone has; the claim is not believed",
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
func (c *Claims) claim(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec,
	owner metav1.OwnerReference) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	configuration, _ := slot.SplitInstance(name.Instance)
	if c.CheckpointError() == nil && !spec.ByDRA() { // nobody here can stop a ResourceClaim's containers in time
		if spec.ReleaseUnreachableAfter, err = c.fence.promise(ctx,
			Owner(c.configurations(), configuration)); err != nil {
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
		return false, nil, errors.Join(fmt.Errorf("slot %s of container %q of pod %s/%s is not claimed: "+
			"its Configuration has releaseUnreachableAfter, which has to be in the checkpoint %s. "+
			"Make that file writable; without it the slot is claimed at the next try, and is not released by time: %w",
			name, spec.Container, spec.Pod.Namespace, spec.Pod.Name, c.config.Checkpoint, err),
			c.release(ctx, name, made))
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

// createAttempts is how often a claim may be there for a create and gone when it
// is looked at.
const createAttempts = 5

// ErrContested is the error of a claim that was there for each create, and gone whenever it was read.
var ErrContested = errors.New("others create and delete it all the time")

// create creates a claim, which is to compare and swap: only one object can have the slot's name. wrote
// says that it did. When there is one already that is not the same, it returns that. One that is the same
// and that others may be deleting, as stands says, is replaced: their delete is of its UID. After an error
// the claim may be there: the watch will show it.
func (s *store) create(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec, owner metav1.OwnerReference,
	stands func(slot.Name, *v1alpha1.SlotClaim) bool) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	want := v1alpha1.NewSlotClaim(name, spec, owner)
	for range createAttempts {
		got, err := s.API.Create(ctx, want, metav1.CreateOptions{FieldManager: "kubecri"})
		if err == nil {
			s.own.Wrote(got)
			return true, nil, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, err)
		}
		there, err := s.API.Get(ctx, name.String(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // it went in between
		case err != nil:
			return false, nil, fmt.Errorf("look who has SlotClaim %s: %w", name, err)
		case same(there, spec) && !stands(name, there):
			if err := s.remove(ctx, name, there.UID); err != nil {
				return false, nil, fmt.Errorf("replace SlotClaim %s, which may be released: %w", name, err)
			}
		case same(there, spec): // an answer to a create was lost
			s.own.Wrote(there)
			return false, nil, nil
		default:
			if ours := s.get(name); ours != nil && ours.UID != there.UID {
				// The watch does not show yet that it is gone.
				s.own.Gone(name.String(), ours.UID)
			}
			return false, there, nil
		}
	}
	return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, ErrContested)
}

// remove deletes the claim, and no later one of the name.
func (s *store) remove(ctx context.Context, name slot.Name, uid types.UID) error {
	err := s.API.Delete(ctx, name.String(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		if mayBeDone(err) {
			s.going.Store(uid, mayBeGone)
		}
		return fmt.Errorf("delete SlotClaim %s: %w", name, err)
	}
	s.own.Deleted(name.String(), uid)
	s.going.Delete(uid)
	return nil
}

// mayBeDone reports whether the API server may have done what it was asked, or do it yet, although the call
// has failed: no answer of its own says that it did not, and it was reached.
func mayBeDone(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}
