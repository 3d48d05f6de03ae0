package claims

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/watch"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// allocationAgain is when to look again at a claim whose node is gone and whose ResourceClaim is allocated
// still: ResourceClaims are not watched.
const allocationAgain = 30 * time.Second

// allocated reports whether the slot is allocated, by what the API server has of its ResourceClaim.
func (r *Reconciler) allocated(ctx context.Context, claim *v1alpha1.SlotClaim) (bool, error) {
	of := claim.Spec.ResourceClaim
	if of == nil {
		return false, nil
	}
	key := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	found, err := watch.Get(ctx, r.Live, key, &resourceapi.ResourceClaim{})
	if err != nil {
		return false, fmt.Errorf("read ResourceClaim %s: %w", key, err)
	}
	return found != nil && found.UID == of.UID && allocates(found, claim), nil
}

// allocates reports whether a result of the ResourceClaim is what the slot was claimed for.
func allocates(c *resourceapi.ResourceClaim, claim *v1alpha1.SlotClaim) bool {
	s, err := claim.Slot()
	if err != nil || c.Status.Allocation == nil {
		return false
	}
	for _, result := range c.Status.Allocation.Devices.Results {
		if result.Driver == v1alpha1.DRADriver && result.Device == s.Instance &&
			claim.Spec.Holder == v1alpha1.DRAHolder(c.UID, result.ShareID) {
			return true
		}
	}
	return false
}
