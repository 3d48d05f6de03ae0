package dra

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A SlotClaim may be deleted while its ResourceClaim is prepared, and containers use the slot: with the Node
// object, which owns it, or by hand. It is made again, as that of a container is.

// errLost is in the error of a slot that another has by now.
var errLost = errors.New("both use the device at once: delete the pods of one")

// claimAgain claims what is prepared and not claimed.
func (d *Driver) claimAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	return d.eachPrepared(ctx, d.claimRecorded)
}

// claimRecorded claims what a ResourceClaim is prepared with.
func (d *Driver) claimRecorded(ctx context.Context, p *preparedClaim) error {
	var errs []error
	for _, s := range p.Slots {
		errs = append(errs, d.claimSlotAgain(ctx, p, s))
	}
	return errors.Join(errs...)
}

func (d *Driver) claimSlotAgain(ctx context.Context, p *preparedClaim, s preparedSlot) error {
	c := d.configuration(s.Slot.Instance)
	if c == nil || s.Slot.Index >= c.Spec.Slots() {
		return nil // a claim would not count
	}
	wrote, other, err := d.Claims.HoldFor(ctx, s.Slot, v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel,
		Holder: s.Holder, MadeAgain: true, ResourceClaim: &p.ResourceClaimReference})
	by := klog.KRef(p.Namespace, p.Name)
	switch {
	case errors.Is(err, claims.ErrNotBelieved):
		return nil
	case err != nil:
		return fmt.Errorf("claim slot %s again for ResourceClaim %s: %w", s.Slot, by, err)
	case other != nil:
		return fmt.Errorf("ResourceClaim %s is prepared with slot %s, which is now claimed by %s: %w", by, s.Slot,
			other.HeldBy(), errLost)
	case wrote:
		klog.FromContext(ctx).Info("Claimed a slot again, whose ResourceClaim is prepared", "slot", s.Slot.String(),
			"resourceClaim", by)
	}
	return nil
}
