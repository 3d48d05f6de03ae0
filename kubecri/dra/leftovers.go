package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	draclient "k8s.io/dynamic-resource-allocation/client"
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
	for ref := range unused(refs, pods) {
		errs = append(errs, d.alone(ctx, ref.UID,
			func(ctx context.Context) error { return d.releaseLeftover(ctx, ref) }))
	}
	return errors.Join(errs...)
}

// releaseLeftover releases what the ResourceClaim has here and is not allocated.
func (d *Driver) releaseLeftover(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	claim, err := draclient.New(d.Kube).ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether ResourceClaim %s/%s is allocated: %w", ref.Namespace, ref.Name, err)
	}
	if err != nil || claim.UID != ref.UID {
		claim = &resourceapi.ResourceClaim{} // gone, and so not allocated
	}
	all, err := wants(claim)
	if err != nil {
		return err
	}
	surplus := compare(ref.UID, all, d.Claims.OfDRA())
	if len(all) > 0 && (len(surplus) == 0 || complete(all)) { // it is allocated, and prepared or about to be
		return nil
	}
	if err := d.release(ctx, ref, surplus); err != nil {
		return fmt.Errorf("release what ResourceClaim %s/%s has here and is not allocated any more: %w", ref.Namespace,
			ref.Name, err)
	}
	klog.FromContext(ctx).Info("Released what the kubelet has not unprepared: its ResourceClaim is not allocated any "+
		"more", "resourceClaim", klog.KRef(ref.Namespace, ref.Name), "slots", len(surplus))
	return nil
}

// unused takes out the ResourceClaims that running pods use. Of several with one name the pods use one at most, and a
// pod that does not run yet may wait for the slots of a former one of its claim's name.
func unused(refs map[v1alpha1.ResourceClaimReference]bool, pods []*corev1.Pod,
) map[v1alpha1.ResourceClaimReference]bool {
	used, named := map[types.NamespacedName]bool{}, map[types.NamespacedName]int{}
	for _, pod := range pods {
		for _, name := range claimsOf(pod) {
			used[name] = used[name] || pod.Status.Phase == corev1.PodRunning
		}
	}
	for ref := range refs {
		named[nameOf(ref)]++
	}
	maps.DeleteFunc(refs, func(ref v1alpha1.ResourceClaimReference, _ bool) bool {
		return used[nameOf(ref)] && named[nameOf(ref)] == 1
	})
	return refs
}
