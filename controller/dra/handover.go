package dra

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Handover says who gives a Configuration's devices in a cluster without kube-scheduler of Kubeslot, whose
// part this is otherwise: with device plugins alone, whoever has a slot has a SlotClaim.
type Handover struct {
	// Live lists ResourceSlices and ResourceClaims, while a Configuration goes back to slots.
	Live      client.Reader
	Inventory *inventory.Inventory
}

// Status returns what the Configuration's status.allocator is to be.
func (h *Handover) Status(ctx context.Context, c *akriv0.Configuration) (*akriv0.AllocatorStatus, error) {
	of := h.Inventory.InForce(c.Name)
	switch {
	case of == nil || of.UID != c.UID: // another has the name
		return c.Status.Allocator, nil
	case c.Spec.IsDRA():
		return c.AllocatorStatusFor(h.Inventory.HeldAsSlots(c.Name)), nil
	case c.Status.Allocator == nil:
		return nil, nil
	}
	held, err := h.heldByDRA(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	return c.AllocatorStatusFor(held), nil
}

// heldByDRA are the Configuration's Instances that a ResourceSlice lists or a ResourceClaim's allocation has.
func (h *Handover) heldByDRA(ctx context.Context, configuration string) (held []string, err error) {
	// First, since a scheduler allocates what is in them.
	published := &resourceapi.ResourceSliceList{}
	err = h.Live.List(ctx, published,
		client.MatchingFields{resourceapi.ResourceSliceSelectorDriver: v1alpha1.DRADriver})
	if apierrors.IsNotFound(err) { // the API server does not have the kind any more
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ResourceSlices: %w", err)
	}
	for i := range published.Items {
		held = append(held, v1alpha1.PublishedInstances(&published.Items[i])...)
	}
	claims := &resourceapi.ResourceClaimList{}
	if err := h.Live.List(ctx, claims); err != nil {
		return nil, fmt.Errorf("list ResourceClaims: %w", err)
	}
	for i := range claims.Items {
		held = append(held, v1alpha1.AllocatedInstances(&claims.Items[i])...)
	}
	held = slices.DeleteFunc(held, func(instance string) bool {
		return v1alpha1.DeviceConfiguration(instance) != configuration
	})
	slices.Sort(held)
	return slices.Compact(held), nil
}
