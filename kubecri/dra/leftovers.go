package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	draclient "k8s.io/dynamic-resource-allocation/client"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
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
		case <-d.deleted:
		case <-ctx.Done():
			return
		}
	}
}

// leftovers releases them once. It asks the API server for ResourceClaims that no pod here uses, and the
// runtime only if one of those has slots to be released.
func (d *Driver) leftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil || !d.Pods.Informer().HasSynced() {
		return err
	}
	pods, _ := d.Pods.Lister().List(labels.Everything()) // from memory
	var errs []error
	for _, claim := range unused(d.Claims.OfDRA(""), pods) {
		errs = append(errs, d.releaseLeftover(ctx, claim, pods))
	}
	return errors.Join(errs...)
}

// releaseLeftover releases what the ResourceClaim has here and is not allocated.
func (d *Driver) releaseLeftover(ctx context.Context, ref v1alpha1.ResourceClaimReference, pods []*corev1.Pod) error {
	d.busy.LockKey(string(ref.UID))
	defer func() { _ = d.busy.UnlockKey(string(ref.UID)) }()
	claim, err := draclient.New(d.Kube).ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether ResourceClaim %s/%s is allocated: %w", ref.Namespace, ref.Name, err)
	}
	if err != nil || claim.UID != ref.UID {
		claim = &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: ref.UID}} // gone, and so not allocated
	}
	all, err := wants(claim)
	if err != nil {
		return err
	}
	held, surplus := compare(ref.UID, all, d.Claims.OfDRA(""))
	if len(surplus) == 0 {
		return nil
	}
	listed, err := crilist.List(ctx, d.Runtime)
	if err != nil {
		return err
	}
	if pod := unknown(listed.Containers, pods); pod != "" {
		return fmt.Errorf("a container runs of pod %s, which the API server does not have and which may use slots of "+
			"ResourceClaim %s/%s: stop it", pod, ref.Namespace, ref.Name)
	}
	if d.CDI != nil && len(slices.Concat(held...)) == 0 {
		if err := d.CDI.RemoveClaim(ref.UID); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range surplus {
		klog.FromContext(ctx).Info("Releasing a slot that the kubelet has not unprepared: its ResourceClaim is not "+
			"allocated any more", "slot", c.Name, "resourceClaim", klog.KRef(ref.Namespace, ref.Name))
		errs = append(errs, d.Claims.Release(ctx, c))
	}
	return errors.Join(errs...)
}

// unused are the ResourceClaims that hold slots here and that none of the pods uses, each once.
func unused(here []*v1alpha1.SlotClaim, pods []*corev1.Pod) []v1alpha1.ResourceClaimReference {
	used := map[types.NamespacedName]bool{}
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for i := range pod.Spec.ResourceClaims {
			if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
				used[types.NamespacedName{Namespace: pod.Namespace, Name: *name}] = true
			}
		}
		if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
			used[types.NamespacedName{Namespace: pod.Namespace, Name: extended.ResourceClaimName}] = true
		}
	}
	var all []v1alpha1.ResourceClaimReference
	for _, c := range here {
		ref := c.Spec.ResourceClaim
		if ref != nil && !used[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] && !slices.Contains(all,
			*ref) {
			all = append(all, *ref)
		}
	}
	return all
}

// unknown returns a pod, as namespace/name, that has a running container and is not among the pods; "" for
// none. A static pod is among them by its mirror pod.
func unknown(containers []*runtimeapi.Container, pods []*corev1.Pod) string {
	known := map[string]bool{}
	for _, pod := range pods {
		known[string(pod.UID)] = true
		known[pod.Annotations[corev1.MirrorPodAnnotationKey]] = true
	}
	for _, c := range containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && !known[kubelettypes.GetPodUID(c.Labels)] {
			return kubelettypes.GetPodNamespace(c.Labels) + "/" + kubelettypes.GetPodName(c.Labels)
		}
	}
	return ""
}
