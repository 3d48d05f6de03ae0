package claims

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeslot/kubeslot/controller/watch"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// allocationAgain is when to look again at a claim whose node is gone and whose ResourceClaim is allocated
// still: ResourceClaims are not watched.
const allocationAgain = 30 * time.Second

// allocated reports whether the slot is allocated on the claim's node, nil for one that is gone, by what the API server
// has of the claim's ResourceClaim.
func (r *Reconciler) allocated(ctx context.Context, claim *v1alpha1.SlotClaim, node *corev1.Node) (bool, error) {
	of := claim.Spec.ResourceClaim
	if of == nil {
		return false, nil
	}
	key := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	found, err := watch.Get(ctx, r.Live, key, &resourceapi.ResourceClaim{})
	if err != nil {
		return false, fmt.Errorf("read ResourceClaim %s: %w", key, err)
	}
	name, err := claim.Slot()
	if err != nil || found == nil || found.UID != of.UID ||
		!v1alpha1.DRAAllocates(found, name.Instance, claim.Spec.Holder) {
		return false, nil //nolint:nilerr // no slot's claim
	}
	return !boundElsewhere(found.Status.Allocation.NodeSelector, node), nil
}

// boundElsewhere reports whether an allocation is bound to another node by its name, as our devices bind it. Labels
// do not tell: they may have changed since.
func boundElsewhere(on *corev1.NodeSelector, node *corev1.Node) bool {
	if on == nil || node == nil || slices.ContainsFunc(on.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions) > 0
	}) {
		return false
	}
	selector, err := nodeaffinity.NewNodeSelector(on)
	return err == nil && !selector.Match(node)
}
