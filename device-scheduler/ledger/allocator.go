package ledger

import (
	"maps"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// dra is what Dynamic Resource Allocation has of Instances.
type dra struct {
	// objects are the Instances that each ResourceSlice lists, or each ResourceClaim's allocation has, by
	// the object's UID.
	objects map[string][]string
	// instances count the objects, by Configuration and Instance.
	instances map[string]map[string]int
}

// SetDRA records which Instances a ResourceSlice lists, or a ResourceClaim's allocation has; none when the
// object is gone. It keeps the list. While any such object has an Instance, the ledger gives no slots of it.
func (l *Ledger) SetDRA(uid string, instances []string) Event {
	u := l.update()
	changed := map[string]bool{} // Configurations
	count := func(instance string, step int) {
		configuration := v1alpha1.DeviceConfiguration(instance)
		if configuration == "" {
			return // no device of ours has such a name
		}
		of := l.dra.instances[configuration]
		if of == nil {
			of = map[string]int{}
			l.dra.instances[configuration] = of
		}
		before := of[instance]
		if of[instance] += step; of[instance] == 0 {
			delete(of, instance)
		}
		if len(of) == 0 {
			delete(l.dra.instances, configuration)
		}
		if before == 0 || before+step == 0 {
			changed[configuration] = true
			if d := l.devices[instance]; d != nil && d.config != nil {
				u.touched[d] = true
			}
		}
	}
	for _, instance := range instances { // first, so that none is free in between
		count(instance, 1)
	}
	for _, instance := range l.dra.objects[uid] {
		count(instance, -1)
	}
	if l.dra.objects[uid] = instances; len(instances) == 0 {
		delete(l.dra.objects, uid)
	}
	event := u.settle()
	for configuration := range changed {
		if conf := l.configs[configuration]; conf.goesTo(akriv0.AllocatorSlots) {
			event.Handover = append(event.Handover, configuration)
		}
	}
	return event
}

// withholds reports whether no slots of the device are given: the Configuration's devices are DRA's, or are to
// be, or DRA has this one yet.
func (l *Ledger) withholds(d *device) bool {
	if d.config == nil || d.config.owner == nil {
		return false
	}
	return !d.config.owner.GivesSlots() || l.dra.instances[d.config.name][d.name] > 0
}

// goesTo reports whether the allocator is the one that the Configuration in force asks for.
func (conf *configRecord) goesTo(a akriv0.Allocator) bool {
	return conf != nil && conf.owner != nil && conf.owner.Spec.IsDRA() == (a == akriv0.AllocatorDRA)
}

// handsOver reports whether the Configuration's status.allocator says something, or should.
func (l *Ledger) handsOver(conf *configRecord) bool {
	c := conf.owner
	return c != nil && (c.Spec.IsDRA() || c.Status.Allocator != nil || len(l.dra.instances[conf.name]) > 0)
}

// Handover returns the Configuration in force that has the name, nil for none, and in order the Instances
// that the allocator which its spec does not name has yet: those with a slot that is assumed, bound or
// claimed, or those that DRA's objects have.
func (l *Ledger) Handover(configuration string) (c *akriv0.Configuration, instances []string) {
	conf := l.configs[configuration]
	if conf == nil || conf.owner == nil {
		return nil, nil
	}
	if !conf.owner.Spec.IsDRA() {
		return conf.owner, slices.Sorted(maps.Keys(l.dra.instances[configuration]))
	}
	for _, d := range l.devices { // also those that no node has reported yet
		if slices.ContainsFunc(d.slots, (*slotState).heldAsSlot) &&
			v1alpha1.DeviceConfiguration(d.name) == configuration {
			instances = append(instances, d.name)
		}
	}
	slices.Sort(instances)
	return conf.owner, instances
}

// heldAsSlot reports whether somebody has the slot, or is bound to get it, and not by DRA.
func (s *slotState) heldAsSlot() bool {
	c := s.claimed()
	return len(s.holders) > 0 || c != nil && !c.byDRA || s.nominee != nil && s.nominee.bound
}
