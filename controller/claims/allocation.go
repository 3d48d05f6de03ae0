package claims

import (
	"context"
	"fmt"
	"slices"
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
	s, errName := claim.Slot()
	if found == nil || found.UID != of.UID || errName != nil {
		return false, nil
	}
	return slices.ContainsFunc(v1alpha1.DRAResults(found), func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Device == s.Instance && claim.Spec.Holder == v1alpha1.DRAHolder(found.UID, r.ShareID)
	}), nil
}
