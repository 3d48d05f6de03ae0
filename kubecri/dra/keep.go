package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A SlotClaim may be deleted while its ResourceClaim is prepared, and containers use the slot: with the Node
// object, which owns it, or by hand. It is made again, as that of a container is.
//
// A kubelet that has lost its state, of a node that was installed anew with the name of the former say, does
// not ask to unprepare what the former has prepared. Its slots are released when the ResourceClaim is not
// allocated any more and nothing can run that has them.

// keep keeps what is claimed as what is prepared until ctx is done.
func (d *Driver) keep(ctx context.Context) {
	ticker := d.Clock.NewTicker(d.Resync)
	defer ticker.Stop()
	failing := false
	for {
		err := d.look(ctx)
		if err != nil && !failing && ctx.Err() == nil { // once an outage
			klog.FromContext(ctx).Error(err, "What ResourceClaims have is not claimed, or not released; trying again",
				"every", d.Resync)
		}
		failing = err != nil
		select {
		case <-ticker.C():
		case <-d.again:
		case <-ctx.Done():
			return
		}
	}
}

// look looks once at each ResourceClaim that has something here. It asks the API server for those that no pod uses
// which runs here, and the runtime only if one of those has slots to be released.
func (d *Driver) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	recorded, err := d.allRecorded()
	errs := []error{err}
	refs := map[v1alpha1.ResourceClaimReference]bool{}
	for _, p := range recorded {
		refs[p.ResourceClaimReference] = true
	}
	for _, c := range d.Claims.OfDRA() {
		if c.Spec.ResourceClaim != nil {
			refs[*c.Spec.ResourceClaim] = true
		}
	}
	pods, _ := d.Pods.Lister().List(labels.Everything()) // from memory
	for ref := range refs {
		errs = append(errs, d.alone(ctx, ref.UID, func(ctx context.Context) error {
			p, err := d.recorded(ref.UID)
			if p != nil { // somebody may have deleted claims of it, or have created one late
				err = errors.Join(d.claimAgain(ctx, p), d.releaseAll(ctx, p.beyond(d.of(ref.UID))))
			}
			if d.Pods.Informer().HasSynced() && mayBeLeft(ref, refs, pods) {
				err = errors.Join(err, d.releaseLeftover(ctx, ref, p))
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// errLost is in the error of a slot that another has by now.
var errLost = errors.New("both use the device at once: delete the pods of one")

// claimAgain claims what a ResourceClaim is prepared with.
func (d *Driver) claimAgain(ctx context.Context, p *preparedClaim) error {
	var errs []error
	for name, r := range p.slots() {
		errs = append(errs, d.claimSlotAgain(ctx, p, r, name))
	}
	return errors.Join(errs...)
}

func (d *Driver) claimSlotAgain(ctx context.Context, p *preparedClaim, r *result, name slot.Name) error {
	c := d.configuration(name.Instance)
	if c == nil || name.Index >= c.Spec.Slots() {
		return nil // a claim would not count
	}
	wrote, other, err := d.claimSlot(ctx, p, r, name, true)
	by := klog.KRef(p.Namespace, p.Name)
	switch {
	case errors.Is(err, claims.ErrNotBelieved):
		return nil
	case err != nil:
		return fmt.Errorf("claim slot %s again for ResourceClaim %s: %w", name, by, err)
	case other != nil:
		return fmt.Errorf("ResourceClaim %s is prepared with slot %s, which is now claimed by %s: %w", by, name,
			other.HeldBy(), errLost)
	case wrote:
		klog.FromContext(ctx).Info("Claimed a slot again, whose ResourceClaim is prepared", "slot", name.String(),
			"resourceClaim", by)
	}
	return nil
}

// releaseLeftover releases what the ResourceClaim has here, prepared or not, unless it is allocated.
func (d *Driver) releaseLeftover(ctx context.Context, ref v1alpha1.ResourceClaimReference, p *preparedClaim) error {
	claim, err := d.Kube.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether ResourceClaim %s/%s is allocated: %w", ref.Namespace, ref.Name, err)
	}
	held := d.of(ref.UID)
	if err == nil && claim.UID == ref.UID { // otherwise it is gone
		isAllocated := slices.ContainsFunc(held, func(c *v1alpha1.SlotClaim) bool { return c.AllocatedBy(claim) })
		for _, r := range p.slots() {
			isAllocated = isAllocated || v1alpha1.DRAAllocates(claim, r.Instance, p.holder(r))
		}
		if isAllocated { // and prepared, or about to be
			return nil
		}
	}
	if err := d.release(ctx, ref, held); err != nil {
		return fmt.Errorf("release what ResourceClaim %s/%s has here and is not allocated any more: %w", ref.Namespace,
			ref.Name, err)
	}
	klog.FromContext(ctx).Info("Released what the kubelet has not unprepared: its ResourceClaim is not allocated any "+
		"more", "resourceClaim", klog.KRef(ref.Namespace, ref.Name), "slots", len(held))
	return nil
}

// mayBeLeft reports whether no running pod is known to use the ResourceClaim. Of several with one name the pods use one
// at most, and a pod that does not run yet may wait for the slots of a former one of its claim's name.
func mayBeLeft(ref v1alpha1.ResourceClaimReference, all map[v1alpha1.ResourceClaimReference]bool,
	pods []*corev1.Pod) bool {
	for other := range all {
		if other.Namespace == ref.Namespace && other.Name == ref.Name && other.UID != ref.UID {
			return true
		}
	}
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && uses(pod, ref)
	})
}
