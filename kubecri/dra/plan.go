package dra

import (
	"fmt"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// preparedClaim is what a ResourceClaim has here, or is to have. The claim's CDI spec has it as an annotation.
type preparedClaim struct {
	v1alpha1.ResourceClaimReference
	Broker  string   `json:"broker,omitempty"` // the Configuration of whose brokers the claim is
	Results []result `json:"results"`
	// Revoked is set when no container is to be created with them any more: nothing is described.
	Revoked bool `json:"revoked,omitempty"`
	// Nodes are the device nodes of the spec, and which they are.
	Nodes checkpoint.Device `json:"nodes"`
}

// result is one of the ResourceClaim's allocation: slots of one device, for one request.
type result struct {
	Request  string     `json:"request"`
	Pool     string     `json:"pool"`
	Instance string     `json:"instance"` // the device's name
	Share    *types.UID `json:"share,omitempty"`
	Slots    int        `json:"slots"` // how many it is to have
	Held     []int      `json:"held"`  // the indexes of those that it has, in order
}

// allocated is what the ResourceClaim is to have here: its results that are of our driver. It holds nothing yet.
func allocated(claim *resourceapi.ResourceClaim) (*preparedClaim, error) {
	of := v1alpha1.ResourceClaimReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	p := &preparedClaim{Broker: claim.Labels[akriv0.BrokerLabel], ResourceClaimReference: of}
	all := 0
	for _, r := range v1alpha1.DRAResults(claim) {
		if r.AdminAccess != nil && *r.AdminAccess {
			return nil, fmt.Errorf("request %s has adminAccess, which driver %s does not give: a slot is used by who "+
				"holds it", r.Request, v1alpha1.DRADriver)
		}
		if v1alpha1.DeviceConfiguration(r.Device) == "" {
			return nil, fmt.Errorf("request %s was allocated device %q of pool %q, which is not the name of an "+
				"Instance", r.Request, r.Device, r.Pool)
		}
		for _, c := range resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, r) {
			if c.Opaque.Driver == v1alpha1.DRADriver { // somebody believes that it does something
				return nil, fmt.Errorf("request %s has parameters for driver %s (%s: devices.config of the claim, or "+
					"config of its DeviceClass), which takes none: remove them",
					r.Request, v1alpha1.DRADriver, c.Source)
			}
		}
		slots, err := consumed(r.ConsumedCapacity)
		if err != nil {
			return nil, fmt.Errorf("request %s of device %s: %w", r.Request, r.Device, err)
		}
		if all += slots; all > v1alpha1.DRAMaxSlots {
			return nil, fmt.Errorf("its requests consume more than %d slots: divide it into several ResourceClaims",
				v1alpha1.DRAMaxSlots)
		}
		p.Results = append(p.Results, result{Request: r.Request, Pool: r.Pool, Instance: r.Device, Share: r.ShareID,
			Slots: slots})
	}
	return p, nil
}

// consumed is how many slots a result has; one where the API server does not know consumed capacity.
func consumed(capacity map[resourceapi.QualifiedName]resource.Quantity) (int, error) {
	quantity, known := capacity[v1alpha1.DRASlots] // as the ResourceSlice has the name
	if !known {
		return 1, nil
	}
	n, whole := quantity.AsInt64()
	if !whole || n < 1 || n > v1alpha1.DRAMaxSlots {
		return 0, fmt.Errorf("it consumes %s of the capacity %q: want a whole number from 1 to %d, as many as a "+
			"container can have", quantity.String(), v1alpha1.DRASlots, v1alpha1.DRAMaxSlots)
	}
	return int(n), nil
}

// holder is that of the result's slots.
func (p *preparedClaim) holder(r *result) string { return v1alpha1.DRAHolder(p.UID, r.Share) }

// slots are those that the ResourceClaim has here, each with its holder.
func (p *preparedClaim) slots() map[slot.Name]string {
	slots := map[slot.Name]string{}
	for _, r := range p.Results {
		for _, index := range r.Held {
			slots[slot.Name{Instance: r.Instance, Index: index}] = p.holder(&r)
		}
	}
	return slots
}

// isOf reports whether it is of the same allocation as the other, which holds nothing.
func (p *preparedClaim) isOf(other *preparedClaim) bool {
	return p != nil && slices.EqualFunc(p.Results, other.Results, func(a, b result) bool {
		a.Held = nil
		return reflect.DeepEqual(a, b)
	})
}

// mayPrepare returns an error unless DRA gives the Instance's slots. configuration is the one in force that
// the Instance is of, nil for none. A claim that was allocated before the Configuration changed back to
// Slots is prepared as long as the Instance is held for such claims.
func mayPrepare(configuration *akriv0.Configuration, instance string) error {
	if configuration == nil {
		return fmt.Errorf("device %s is of Configuration %s, which does not exist, is being deleted, or is not the "+
			"one in force: apply the Configuration again, or delete the pod", instance,
			v1alpha1.DeviceConfiguration(instance))
	}
	a := configuration.Status.Allocator
	if a != nil && (a.Current == akriv0.AllocatorDRA || a.Holds(instance)) {
		return nil
	}
	return fmt.Errorf("device %s is of Configuration %s/%s, whose slots kube-scheduler gives: its spec.allocator or "+
		"status.allocator is not DRA. Delete the ResourceClaim, and have the pod request the resource akri.sh/%s",
		instance, configuration.Namespace, configuration.Name, configuration.Name)
}
