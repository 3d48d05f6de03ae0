package ledger

import (
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// dra is what Dynamic Resource Allocation has of Instances.
type dra struct {
	// objects are the Instances that each ResourceSlice lists, or each ResourceClaim's allocation has, by
	// the object's UID.
	objects   map[string][]string
	instances map[string]int // of how many objects each Instance is
}

// SetDRA records which Instances a ResourceSlice lists, or a ResourceClaim's allocation has; none when the
// object is gone. It keeps the list. While any such object has an Instance, the ledger gives no slots of it.
func (l *Ledger) SetDRA(uid string, instances []string) Event {
	u := l.update()
	count := func(instance string, step int) {
		if l.dra.instances[instance] += step; l.dra.instances[instance] == 0 {
			delete(l.dra.instances, instance)
		}
		if d := l.devices[instance]; d != nil && d.config != nil {
			u.touched[d] = true
		}
	}
	for _, instance := range instances {
		count(instance, 1)
	}
	for _, instance := range l.dra.objects[uid] {
		count(instance, -1)
	}
	if l.dra.objects[uid] = instances; len(instances) == 0 {
		delete(l.dra.objects, uid)
	}
	return u.settle()
}

// withholds reports whether no slots of the device are given: the Configuration's devices are DRA's, or are to
// be, or DRA has this one yet.
func (l *Ledger) withholds(d *device) bool {
	if d.config == nil || d.config.owner == nil {
		return false
	}
	return !d.config.owner.GivesSlots() || l.dra.instances[d.name] > 0
}

// Handover is a Configuration in force whose status.allocator says something, or is to, and in order the
// Instances that the allocator which its spec does not name has yet: those with a slot that is assumed, bound
// or claimed, or those that DRA's objects have.
type Handover struct {
	Configuration *akriv0.Configuration
	Held          []string
}

// Handovers returns those of all Configurations, in no order.
func (l *Ledger) Handovers() []Handover {
	dra, slots := map[string][]string{}, map[string][]string{} // what each has, by Configuration
	for instance := range l.dra.instances {
		name := v1alpha1.DeviceConfiguration(instance)
		dra[name] = append(dra[name], instance)
	}
	for name, conf := range l.configs {
		if conf.owner != nil && conf.owner.Spec.IsDRA() {
			slots[name] = []string{}
		}
	}
	if len(slots) > 0 {
		for _, d := range l.devices { // also those that no node has reported yet
			if !slices.ContainsFunc(d.slots, (*slotState).heldAsSlot) {
				continue
			}
			if name := v1alpha1.DeviceConfiguration(d.name); slots[name] != nil {
				slots[name] = append(slots[name], d.name)
			}
		}
	}
	var all []Handover
	for name, conf := range l.configs {
		held, toDRA := slots[name]
		if !toDRA {
			held = dra[name]
		}
		if c := conf.owner; c != nil && (toDRA || c.Status.Allocator != nil || len(held) > 0) {
			slices.Sort(held)
			all = append(all, Handover{c, held})
		}
	}
	return all
}

// heldAsSlot reports whether somebody has the slot, or is bound to get it, and not by DRA.
func (s *slotState) heldAsSlot() bool {
	c := s.claimed()
	return len(s.holders) > 0 || c != nil && !c.byDRA || s.nominee != nil && s.nominee.bound
}
