package dra

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// What a ResourceClaim is prepared with is in use until the runtime has no container that may have it. The kubelet
// does not wait for that: it has a claim unprepared while containers of a pod that was deleted by force run still,
// and has one prepared anew whose pod it believes to be prepared.

// revoke takes back what a ResourceClaim has here: no container is created with it from now on. It returns an error
// while one may have it, and its slots are in use; then the spec is gone, and they are released.
func (d *Driver) revoke(ctx context.Context, ref v1alpha1.ResourceClaimReference) error {
	if p, _ := d.recorded(ref.UID); p != nil {
		p.Revoked = true
		if err := d.describe(p, nil); err != nil {
			return err
		}
	}
	if !d.Pods.Informer().HasSynced() {
		return errors.New("the API server has not yet said which pods there are")
	}
	listed, err := crilist.List(ctx, d.Runtime)
	if err != nil {
		return err
	}
	pods, _ := d.Pods.Lister().List(labels.Everything()) // from memory, and afterwards: pods come before containers
	if c := user(listed, pods, ref); c != nil {
		return fmt.Errorf("container %q of pod %s/%s has not ended and may use it: the slots are free when it has",
			kubelettypes.GetContainerName(c.Labels), ref.Namespace, kubelettypes.GetPodName(c.Labels))
	}
	if err := d.CDI.RemoveClaim(ref.UID); err != nil {
		return err
	}
	d.Claims.Use(ref, nil)
	return d.Claims.Free(ctx, d.of(ref))
}

// user returns a container that may use the ResourceClaim, nil for none: one that has not ended, of a pod that
// uses the claim, or of a pod in its namespace that is not among the pods, as of one that was deleted by force.
// Static pods have no claims.
func user(listed crilist.Listing, pods []*corev1.Pod, ref v1alpha1.ResourceClaimReference) *runtimeapi.Container {
	users := map[string]bool{} // by the UIDs of pods that are known
	for _, pod := range pods {
		users[string(pod.UID)] = uses(pod, ref)
	}
	for _, c := range listed.Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED || !listed.Usable(c) ||
			kubelettypes.GetPodNamespace(c.Labels) != ref.Namespace {
			continue
		}
		used, known := users[kubelettypes.GetPodUID(c.Labels)]
		if used || !known && !assignment.Static(listed.Sandboxes[c.PodSandboxId].GetAnnotations()) {
			return c
		}
	}
	return nil
}

// uses reports whether the pod names the ResourceClaim, or an earlier or later one of its name.
func uses(pod *corev1.Pod, ref v1alpha1.ResourceClaimReference) bool {
	for name := range resourceclaim.PodClaims(pod) {
		if name == ref.Name {
			return pod.Namespace == ref.Namespace
		}
	}
	return false
}
