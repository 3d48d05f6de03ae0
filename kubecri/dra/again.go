package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A SlotClaim may be deleted while its ResourceClaim is prepared, and containers use the slot: with the Node
// object, which owns it, or by hand. It is made again, as that of a container is. What was prepared is in an
// annotation of the ResourceClaim's CDI spec.

// preparedAnnotation has a preparedClaim as JSON.
const preparedAnnotation = v1alpha1.DRADriver + "/prepared"

// preparedClaim is what a ResourceClaim has here.
type preparedClaim struct {
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Slots     map[string][]string `json:"slots"` // their names, by holder
}

func annotationsOf(claim v1alpha1.ResourceClaimReference, all []want, held [][]slot.Name) (map[string]string, error) {
	p := preparedClaim{Namespace: claim.Namespace, Name: claim.Name, Slots: map[string][]string{}}
	for i, w := range all {
		for _, name := range held[i] {
			p.Slots[w.holder] = append(p.Slots[w.holder], name.String())
		}
	}
	text, err := json.Marshal(p)
	return map[string]string{preparedAnnotation: string(text)}, err
}

// recorded returns what a ResourceClaim is prepared with; nil for nothing.
func (d *Driver) recorded(claim types.UID) (*preparedClaim, error) {
	if d.CDI == nil {
		return nil, nil
	}
	annotations, err := d.CDI.ClaimAnnotations(claim)
	if err != nil || annotations == nil {
		return nil, err
	}
	p := &preparedClaim{}
	if err := json.Unmarshal([]byte(annotations[preparedAnnotation]), p); err != nil {
		return nil, fmt.Errorf("CDI spec of ResourceClaim %s: annotation %s: %w", claim, preparedAnnotation, err)
	}
	return p, nil
}

// eachPrepared calls do for each ResourceClaim that is prepared, with its lock. An error of one stops no other.
func (d *Driver) eachPrepared(ctx context.Context,
	do func(context.Context, types.UID, *preparedClaim) error) error {
	if d.CDI == nil {
		return nil
	}
	all, err := d.CDI.Claims()
	errs := []error{err}
	for _, claim := range all {
		errs = append(errs, func() error {
			d.busy.LockKey(string(claim))
			defer func() { _ = d.busy.UnlockKey(string(claim)) }()
			p, err := d.recorded(claim)
			if err != nil || p == nil { // it was unprepared meanwhile
				return err
			}
			return do(ctx, claim, p)
		}())
	}
	return errors.Join(errs...)
}

// claimAgain claims what is prepared and not claimed.
func (d *Driver) claimAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := d.Claims.Ready(ctx); err != nil {
		return err
	}
	return d.eachPrepared(ctx, d.claimRecorded)
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
