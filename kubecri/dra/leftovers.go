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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A kubelet that has lost its state, of a node that was installed anew with the name of the former say, does
// not ask to unprepare what the former has prepared. Its slots are released when the ResourceClaim is not
// allocated any more and nothing can run that has them. So are those that the API server says late that it has created.

// releaseLeftovers releases what is left over until ctx is done.
func (d *Driver) releaseLeftovers(ctx context.Context) {
	failing := false
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := d.look(ctx)
		if err != nil && !failing && ctx.Err() == nil { // once an outage
			klog.FromContext(ctx).Error(err, "What ResourceClaims no longer have is not released; trying again",
				"every", d.Resync)
		}
		failing = err != nil
	}, d.Resync)
}

// look looks once at each ResourceClaim that has something here. It asks the API server for those that no pod uses
// which runs here, and the runtime only if one of those has slots to be released.
func (d *Driver) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil || !d.Pods.Informer().HasSynced() {
		return err
	}
	all := d.Claims.OfResourceClaims()
	pods, _ := d.Pods.Lister().List(labels.Everything()) // from memory
	var errs []error
	for ref := range all {
		if mayBeLeft(ref, all, pods) {
			errs = append(errs, d.alone(ctx, ref.UID, func(ctx context.Context) error {
				return d.releaseLeftover(ctx, ref)
			}))
		}
	}
	return errors.Join(errs...)
}

// releaseLeftover releases what the ResourceClaim has here, prepared or not, unless it is allocated.
func (d *Driver) releaseLeftover(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	claim, err := d.Kube.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether ResourceClaim %s/%s is allocated: %w", ref.Namespace, ref.Name, err)
	}
	held := d.of(ref)
	if err == nil && claim.UID == ref.UID { // otherwise it is gone
		for name, holder := range held {
			if v1alpha1.DRAAllocates(claim, name.Instance, holder) { // and prepared, or about to be
				return nil
			}
		}
	}
	if err := d.revoke(ctx, ref); err != nil {
		return fmt.Errorf("release what ResourceClaim %s/%s has here and is not allocated any more: %w", ref.Namespace,
			ref.Name, err)
	}
	klog.FromContext(ctx).Info("Released what the kubelet has not unprepared: its ResourceClaim is not allocated any "+
		"more", "resourceClaim", klog.KRef(ref.Namespace, ref.Name), "slots", len(held))
	return nil
}

// mayBeLeft reports whether no running pod is known to use the ResourceClaim. Of several with one name the pods use one
// at most, and a pod that does not run yet may wait for the slots of a former one of its claim's name.
func mayBeLeft(ref v1alpha1.ResourceClaimReference,
	all map[v1alpha1.ResourceClaimReference]map[slot.Name]string, pods []*corev1.Pod) bool {
	for other := range all {
		if other.Namespace == ref.Namespace && other.Name == ref.Name && other.UID != ref.UID {
			return true
		}
	}
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && uses(pod, ref)
	})
}
