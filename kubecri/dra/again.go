package dra

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A SlotClaim may be deleted while its ResourceClaim is prepared, and containers use the slot: with the Node
// object, which owns it, or by hand. It is made again, as that of a container is.

// claimAgain claims what is prepared and not claimed.
func (d *Driver) claimAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	return d.eachPrepared(ctx, func(claim types.UID, p *preparedClaim) error {
		return d.claimRecorded(ctx, claim, p)
	})
}

// claimRecorded claims what a ResourceClaim is prepared with; the caller has its lock.
func (d *Driver) claimRecorded(ctx context.Context, claim types.UID, p *preparedClaim) error {
	var errs []error
	for holder, names := range p.Slots {
		for _, text := range names {
			name, err := slot.Parse(text)
			if err == nil {
				err = d.claimSlotAgain(ctx, name, v1alpha1.SlotClaimSpec{
					Level: v1alpha1.ConfigurationLevel, Holder: holder, MadeAgain: true,
					ResourceClaim: &v1alpha1.ResourceClaimReference{Namespace: p.Namespace, Name: p.Name, UID: claim}})
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (d *Driver) claimSlotAgain(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec) error {
	c := d.configuration(name.Instance)
	if c == nil || name.Index >= c.Spec.Slots() {
		return nil // a claim would not count
	}
	wrote, other, err := d.Claims.HoldFor(ctx, name, spec)
	by := klog.KRef(spec.ResourceClaim.Namespace, spec.ResourceClaim.Name)
	switch {
	case errors.Is(err, claims.ErrNotBelieved):
		return nil
	case err != nil:
		return fmt.Errorf("claim slot %s again for ResourceClaim %s: %w", name, by, err)
	case other != nil:
		return fmt.Errorf("ResourceClaim %s is prepared with slot %s, which is now claimed by %s. "+
			"Both use the device at once: delete the pods of one", by, name, other.HeldBy())
	case wrote:
		klog.FromContext(ctx).Info("Claimed a slot again, whose ResourceClaim is prepared", "slot", name.String(),
			"resourceClaim", by)
	}
	return nil
}
