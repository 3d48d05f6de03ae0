package source

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Claimed is a claimed slot, and what says whether its container may still run.
type Claimed struct {
	Claim *v1alpha1.SlotClaim
	Node  *corev1.Node // nil when there is none
	// Pod is the one that the claim was made for, by UID; nil when it is gone or not known.
	Pod *corev1.Pod
	// Heard is when kubecri of the node last renewed its Lease, by the node's clock; zero when
	// it renews none for this claim, or the Lease may not be read.
	Heard time.Time
}

// Claimed reads the slot's claim, and then its Node and pod. It is apierrors.IsNotFound when the
// slot is not claimed.
func (s *Source) Claimed(ctx context.Context, slot string) (*Claimed, error) {
	claim, err := s.client.KubeslotV1alpha1().SlotClaims().Get(ctx, slot, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the claim of slot %s: %w", slot, err)
	}
	c := &Claimed{Claim: claim}
	node, err := s.kube.CoreV1().Nodes().Get(ctx, claim.Spec.NodeName, metav1.GetOptions{})
	switch {
	case err == nil:
		c.Node = node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get node %s of slot %s: %w", claim.Spec.NodeName, slot, err)
	}
	if p := claim.Spec.Pod; p != nil {
		pod, err := s.kube.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case err == nil && pod.UID == p.UID:
			c.Pod = pod
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get pod %s/%s of slot %s: %w", p.Namespace, p.Name, slot, err)
		}
	}
	if claim.Spec.ReleaseUnreachableAfter != nil {
		lease, err := s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, v1alpha1.NodeLease(claim.Spec.NodeName), metav1.GetOptions{})
		if err == nil && lease.Spec.RenewTime != nil { // it is told besides, to who may read it
			c.Heard = lease.Spec.RenewTime.Time
		}
	}
	return c, nil
}

// MayRelease reports whether the user may release the slot: a right of its own, besides that to
// delete claims.
func (s *Source) MayRelease(ctx context.Context, slot string) (bool, error) {
	for _, verb := range []string{"release", "delete"} {
		review, err := s.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.SchemeGroupVersion.Group, Resource: "slotclaims", Verb: verb, Name: slot}}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("ask whether you may %s slot %s: %w", verb, slot, err)
		}
		if !review.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

// Release deletes that very claim.
func (s *Source) Release(ctx context.Context, claim *v1alpha1.SlotClaim) error {
	return s.client.KubeslotV1alpha1().SlotClaims().Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
}

// ClaimedAgain waits until the slot has another claim, which it returns, or until the second
// context is done: then it returns nil. It looks once at least.
func (s *Source) ClaimedAgain(ctx, until context.Context, former *v1alpha1.SlotClaim) (*v1alpha1.SlotClaim, error) {
	for {
		claim, err := s.client.KubeslotV1alpha1().SlotClaims().Get(ctx, former.Name, metav1.GetOptions{})
		switch {
		case err == nil && claim.UID != former.UID:
			return claim, nil
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("look whether slot %s was claimed again: %w", former.Name, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-until.Done():
			return nil, nil
		case <-time.After(lookAgain):
		}
	}
}

// lookAgain is between two looks for a claim.
const lookAgain = 250 * time.Millisecond
