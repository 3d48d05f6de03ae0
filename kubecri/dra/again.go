package dra

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A SlotClaim may be deleted while its ResourceClaim is prepared, and containers use the slot: with the Node
// object, which owns it, or by hand. It is made again, as that of a container is.

// errLost is in the error of a slot that another has by now.
var errLost = errors.New("both use the device at once: delete the pods of one")

// claimAgain claims what is prepared and not claimed, and releases what ResourceClaims that are prepared hold beyond:
// a creation that was not answered may have been done after its slot was given up.
func (d *Driver) claimAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	return d.eachPrepared(ctx, func(ctx context.Context, p *preparedClaim) error {
		return errors.Join(d.claimRecorded(ctx, p), d.releaseBeyond(ctx, p, d.of(p.UID)))
	})
}

// claimRecorded claims what a ResourceClaim is prepared with.
func (d *Driver) claimRecorded(ctx context.Context, p *preparedClaim) error {
	var errs []error
	for name, r := range p.slots() {
		errs = append(errs, d.claimSlotAgain(ctx, p, r, name))
	}
	return errors.Join(errs...)
}

func (d *Driver) claimSlotAgain(ctx context.Context, p *preparedClaim, r *result, name slot.Name) error {
	c := d.configuration(name.Instance)
	if c == nil || name.Index >= c.Spec.Slots() {
		return nil // a claim would not count
	}
	wrote, other, err := d.claimSlot(ctx, p, r, name, true)
	by := klog.KRef(p.Namespace, p.Name)
	switch {
	case errors.Is(err, claims.ErrNotBelieved):
		return nil
	case err != nil:
		return fmt.Errorf("claim slot %s again for ResourceClaim %s: %w", name, by, err)
	case other != nil:
		return fmt.Errorf("ResourceClaim %s is prepared with slot %s, which is now claimed by %s: %w", by, name,
			other.HeldBy(), errLost)
	case wrote:
		klog.FromContext(ctx).Info("Claimed a slot again, whose ResourceClaim is prepared", "slot", name.String(),
			"resourceClaim", by)
	}
	return nil
}
