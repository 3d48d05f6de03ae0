package ledger

import (
	"slices"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Event is what a change lets waiting pods have that they could not have before.
type Event struct {
	// Freed are the resources with slots that became free, or that the pod which they are
	// nominated for may take now: names of Configurations and Instances, without the akri.sh/
	// prefix.
	Freed []string
	// Preemptible are slots that others hold, or that are nominated for others, and that
	// pods of at least their MinPreemptorPriority can get by preemption, and could not before.
	Preemptible []slot.Name
	// Displaced are the UIDs of pods that lost their nomination. They have to be scheduled
	// anew.
	Displaced []string
	// Owners are the names that another Configuration may own now, or none, or the same one changed.
	Owners []string
}

func (e *Event) add(other Event) {
	e.Freed = append(e.Freed, other.Freed...)
	e.Preemptible = append(e.Preemptible, other.Preemptible...)
	e.Displaced = append(e.Displaced, other.Displaced...)
	e.Owners = append(e.Owners, other.Owners...)
}

// freed records the device if more of its slots are free, or only their nominees' to take, than
// when an event was last made of it.
func (e *Event) freed(d *device) {
	supply, before := d.supply(), d.offered
	now := offer{free: int32(supply.free), waiting: int32(supply.waiting)}
	if now.free > before.free || now.free+now.waiting > before.free+before.waiting {
		e.Freed = append(e.Freed, d.config.name, d.name)
	}
	d.offered = now
}

// preemptible records the slot, unless no pod can preempt for it.
func (e *Event) preemptible(d *device, s *slotState) {
	if _, ok := d.minPreemptorPriority(s); ok {
		e.Preemptible = append(e.Preemptible, slot.Name{Instance: d.name, Index: s.index})
	}
}

// MinPreemptorPriority returns the lowest priority with which a pod can get a slot that
// another pod holds, or that is nominated for another. It reports false when no priority
// helps, when none is needed, and when the holder is terminating: its end is an event of
// its own.
func (l *Ledger) MinPreemptorPriority(name slot.Name) (int32, bool) {
	s := l.slot(name)
	if s == nil {
		return 0, false
	}
	return l.devices[name.Instance].minPreemptorPriority(s)
}

// refresh brings up to date what is kept of a slot after a change of who has it, and forgets
// a slot that nobody has any more. What pods can have of it that they could not have before
// is recorded in the event, see freed. The device may be forgotten after that.
func (l *Ledger) refresh(d *device, s *slotState, event *Event) {
	before := d.supply()
	l.count(d, s, event)
	d.changed(before)
	if !s.inUse() {
		at, _ := d.find(s.index)
		if d.slots = slices.Delete(d.slots, at, at+1); len(d.slots) == 0 {
			d.usage = notInUse
		}
	}
}

// refreshAll is refresh for several slots, those of a device one after the other: the event has it once,
// for what follows looks at all of the device's slots.
func (l *Ledger) refreshAll(holds []hold, event *Event) {
	for i, h := range holds {
		d := l.devices[h.slot.Instance]
		l.refresh(d, d.at(h.slot.Index), event)
		if i+1 == len(holds) || holds[i+1].slot.Instance != d.name {
			event.freed(d)
			l.dropDevice(d)
		}
	}
}

// count recomputes whether the slot is taken, whether the claim on it counts, and who can have
// it. The device's counts are to be brought up to date after that: see changed.
func (l *Ledger) count(d *device, s *slotState, event *Event) {
	if c := s.claim; c != nil {
		c.counts = l.claimFacts(d, s.index, c.node).Counts()
	}
	if taken := l.countUse(d, s) && s.index < d.capacity; taken != d.taken.has(s.index) {
		step := 1
		if taken {
			d.taken.set(s.index)
			step = -1
		} else {
			d.taken.clear(s.index)
		}
		if d.exists() && s.index < d.capacity && !d.withheld {
			d.nfree += step
		}
	}
	before := s.access
	if s.access = d.access(s); s.access.wider(before) {
		event.preemptible(d, s)
	}
}

// Resources are the names by which pods ask for slots of the Instance, without the
// akri.sh/ prefix; none when it does not exist.
func (l *Ledger) Resources(instance string) []string {
	d := l.devices[instance]
	if d == nil || !d.exists() {
		return nil
	}
	return []string{d.config.name, d.name}
}
