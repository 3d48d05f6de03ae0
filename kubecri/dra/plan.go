package dra

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// maxSlots is how many slots an Instance has at most: the index in a slot's name has four digits.
const maxSlots = 10_000

// want is a result of an allocated ResourceClaim: slots of one device, for one request.
type want struct {
	request, pool string
	instance      string // the device's name
	share         *types.UID
	holder        string // of the slots' claims
	slots         int
	held          []slot.Name // those that are claimed
}

// wants are the results of the ResourceClaim that are of our driver.
func wants(claim *resourceapi.ResourceClaim) ([]want, error) {
	var all []want
	for _, r := range v1alpha1.DRAResults(claim) {
		if r.AdminAccess != nil && *r.AdminAccess {
			return nil, fmt.Errorf("request %s has adminAccess, which driver %s does not give: a slot is used by who "+
				"holds it", r.Request, v1alpha1.DRADriver)
		}
		if v1alpha1.DeviceConfiguration(r.Device) == "" {
			return nil, fmt.Errorf("request %s was allocated device %q of pool %q, which is not the name of an "+
				"Instance", r.Request, r.Device, r.Pool)
		}
		slots, err := consumed(r.ConsumedCapacity)
		if err != nil {
			return nil, fmt.Errorf("request %s of device %s: %w", r.Request, r.Device, err)
		}
		all = append(all, want{request: r.Request, pool: r.Pool, instance: r.Device, share: r.ShareID,
			holder: v1alpha1.DRAHolder(claim.UID, r.ShareID), slots: slots})
	}
	return all, nil
}

// consumed is how many slots a result has; one where the API server does not know consumed capacity.
func consumed(capacity map[resourceapi.QualifiedName]resource.Quantity) (int, error) {
	quantity, known := capacity[v1alpha1.DRASlots] // as the ResourceSlice has the name
	if !known {
		return 1, nil
	}
	n, whole := quantity.AsInt64()
	if !whole || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("it consumes %s of the capacity %q: want a whole number from 1 to %d", quantity.String(),
			v1alpha1.DRASlots, maxSlots)
	}
	return int(n), nil
}

// mayPrepare returns an error unless DRA gives the Instance's slots. configuration is the one in force that
// the Instance is of, nil for none. A claim that was allocated before the Configuration changed back to
// Slots is prepared as long as the Instance is held for such claims.
func mayPrepare(configuration *akriv0.Configuration, instance string) error {
	if configuration == nil {
		return fmt.Errorf("device %s is of Configuration %s, which does not exist, is being deleted, or is not the "+
			"one in force: "+
			"apply the Configuration again, or delete the pod", instance, v1alpha1.DeviceConfiguration(instance))
	}
	a := configuration.Status.Allocator
	if a != nil && (a.Current == akriv0.AllocatorDRA || a.Holds(instance)) {
		return nil
	}
	return fmt.Errorf("device %s is of Configuration %s/%s, whose slots kube-scheduler gives: its spec.allocator or "+
		"status.allocator is not DRA. Delete the ResourceClaim, and have the pod request the resource akri.sh/%s",
		instance, configuration.Namespace, configuration.Name, configuration.Name)
}

// holdsFor reports whether a holder is one of the ResourceClaim's.
func holdsFor(claim types.UID, holder string) bool {
	all := v1alpha1.DRAHolder(claim, nil)
	return holder == all || strings.HasPrefix(holder, all+".")
}

// compare sorts the SlotClaims that the ResourceClaim has here: each want holds its own, at most as many as it
// has slots, the lowest first, and surplus are all others: of another allocation, or too many.
func compare(claim types.UID, all []want, here []*v1alpha1.SlotClaim) (surplus []*v1alpha1.SlotClaim) {
	type found struct {
		name  slot.Name
		claim *v1alpha1.SlotClaim
	}
	var mine []found
	for _, c := range here {
		if name, err := c.Slot(); err == nil && holdsFor(claim, c.Spec.Holder) {
			mine = append(mine, found{name, c})
		}
	}
	slices.SortFunc(mine, func(a, b found) int { return a.name.Index - b.name.Index })
	for _, f := range mine {
		i := slices.IndexFunc(all, func(w want) bool {
			return w.holder == f.claim.Spec.Holder && w.instance == f.name.Instance
		})
		if i < 0 || len(all[i].held) == all[i].slots {
			surplus = append(surplus, f.claim)
			continue
		}
		all[i].held = append(all[i].held, f.name)
	}
	return surplus
}

// complete reports whether each want has all of its slots.
func complete(all []want) bool {
	return !slices.ContainsFunc(all, func(w want) bool { return len(w.held) != w.slots })
}

// lowestFree returns the lowest index below the capacity that nobody has; false for none.
func lowestFree(capacity int, taken map[int]string) (int, bool) {
	for i := range capacity {
		if _, is := taken[i]; !is {
			return i, true
		}
	}
	return 0, false
}
