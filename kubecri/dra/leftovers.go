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

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A kubelet that has lost its state, of a node that was installed anew with the name of the former say, does
// not ask to unprepare what the former has prepared. Its slots are released when the ResourceClaim is not
// allocated any more and nothing can run that has them.

// keep keeps what is claimed as what is prepared until ctx is done: it claims again (again.go), and releases.
func (d *Driver) keep(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := d.Clock.NewTicker(d.Resync)
	defer ticker.Stop()
	failing := false
	for {
		err := errors.Join(d.claimAgain(ctx), d.leftovers(ctx))
		if err != nil && !failing && ctx.Err() == nil { // once an outage
			logger.Error(err, "What ResourceClaims have is not claimed, or not released; trying again",
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

// leftovers releases them once. It asks the API server for ResourceClaims that no pod uses which runs here, and the
// runtime only if one of those has slots to be released.
func (d *Driver) leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil || !d.Pods.Informer().HasSynced() {
		return err
	}
	refs := map[v1alpha1.ResourceClaimReference]bool{}
	for _, c := range d.Claims.OfDRA() {
		if c.Spec.ResourceClaim != nil {
			refs[*c.Spec.ResourceClaim] = true
		}
	}
	recorded, err := d.allRecorded()
	for _, p := range recorded {
		refs[p.ResourceClaimReference] = true
	}
	errs := []error{err}
	pods, _ := d.Pods.Lister().List(labels.Everything()) // from memory
	for ref := range refs {
		if mayBeLeft(ref, refs, pods) {
			errs = append(errs, d.alone(ctx, ref.UID,
				func(ctx context.Context) error { return d.releaseLeftover(ctx, ref) }))
		}
	}
	return errors.Join(errs...)
}

// releaseLeftover releases what the ResourceClaim has here and is not allocated.
func (d *Driver) releaseLeftover(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	claim, err := d.Kube.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether ResourceClaim %s/%s is allocated: %w", ref.Namespace, ref.Name, err)
	}
	held := d.of(ref.UID)
	if err == nil && claim.UID == ref.UID { // otherwise it is gone
		isAllocated := slices.ContainsFunc(held, func(c *v1alpha1.SlotClaim) bool { return c.AllocatedBy(claim) })
		p, _ := d.recorded(ref.UID) // claimAgain says why it cannot be read
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
