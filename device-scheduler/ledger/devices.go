package ledger

import (
	"math"
	"slices"
	"strings"
)

func (l *Ledger) device(name string) *device {
	d := l.devices[name]
	if d == nil {
		d = &device{name: strings.Clone(name), totals: &l.totals}
		l.devices[d.name] = d
	}
	return d
}

// dropDevice forgets a device of which nothing is known any more.
func (l *Ledger) dropDevice(d *device) {
	if d.exists() || d.reports != nil {
		return
	}
	if slices.ContainsFunc(d.slots, (*slotState).inUse) {
		return
	}
	for _, s := range d.slots {
		d.countUse(s) // a nomination of several slots ends one by one
	}
	delete(l.devices, d.name)
	if d.kind != nil {
		delete(d.kind.devices, d)
		l.dropKind(d.kind)
	}
}

// forget drops what is kept of a slot that nobody uses any more, and the device with it.
func (l *Ledger) forget(d *device, i int) {
	if at, found := d.find(i); found && !d.slots[at].inUse() {
		d.slots = slices.Delete(d.slots, at, at+1)
	}
	l.dropDevice(d)
}

// exists reports whether any node reaches the device: only then it gives slots.
func (d *device) exists() bool { return d.group != nil }

// nodes are those that reach the device, sorted. They are not to be changed, and not to
// be kept beyond the ledger's next change.
func (d *device) nodes() []string {
	if d.group == nil {
		return nil
	}
	return d.group.nodes.names
}

// reaches reports whether the node can reach the device.
func (d *device) reaches(node string) bool { return d.group != nil && d.group.nodes.has(node) }

// resize gives the device another capacity. Its slots are to be settled after that.
func (d *device) resize(capacity int) {
	d.unlist()
	defer d.list()
	free, more := d.nfree, capacity-d.capacity
	d.capacity = capacity
	if g := d.group; g != nil {
		d.nfree = capacity - d.taken.below(capacity)
		g.slots += more
		g.free += d.nfree - free
		d.kind.free += d.nfree - free
	}
}

func (d *device) find(i int) (at int, found bool) {
	return slices.BinarySearchFunc(d.slots, i, func(s *slotState, i int) int { return s.index - i })
}

// at returns what is known of slot i, nil when nobody has it.
func (d *device) at(i int) *slotState {
	if at, found := d.find(i); found {
		return d.slots[at]
	}
	return nil
}

// know returns slot i for somebody to have, also when the device does not have it: an
// Instance may be seen after the pod or the claim, or shrink, and an assignment may be
// forged.
func (d *device) know(i int) *slotState {
	at, found := d.find(i)
	if !found {
		d.slots = slices.Insert(d.slots, at, &slotState{index: i})
	}
	return d.slots[at]
}

// inUse reports whether somebody has the slot, or is to have it.
func (s *slotState) inUse() bool { return len(s.holders) > 0 || s.claim != nil || s.nominee != "" }

// claimed returns the claim on the slot that counts, nil when there is none.
func (s *slotState) claimed() *claim {
	if s.claim == nil || !s.claim.counts {
		return nil
	}
	return s.claim
}

// available reports whether the device gives slot i, and nobody has it.
func (d *device) available(i int) bool {
	s := d.at(i)
	return d.exists() && i < d.capacity && (s == nil || len(s.holders) == 0 && s.claimed() == nil)
}

// isFree reports whether slot i is available and is not nominated for a pod.
func (d *device) isFree(i int) bool { return d.exists() && i < d.capacity && !d.taken.has(i) }

// waitsForNominee reports whether slot i would be free, were it not nominated for a pod.
func (d *device) waitsForNominee(i int) bool {
	s := d.at(i)
	return s != nil && s.nominee != "" && d.available(i)
}

// refresh recomputes whether slot i is free, and keeps the order right. It reports whether
// the slot became free.
func (d *device) refresh(i int) bool {
	changed, taken := d.count(i)
	if !changed {
		return false
	}
	d.unlist()
	defer d.list()
	return d.take(i, taken)
}

// count brings the counts of slots by state up to date. It returns whether slot i is taken,
// and whether this is new.
func (d *device) count(i int) (changed, taken bool) {
	s := d.at(i)
	taken = s != nil && d.countUse(s) && i < d.capacity
	return taken != d.taken.has(i), taken
}

// take records that slot i is taken or not. It reports whether the slot became free. The
// device is not in its group's order meanwhile.
func (d *device) take(i int, taken bool) bool {
	step := -1
	if taken {
		d.taken.set(i)
	} else {
		d.taken.clear(i)
		step = 1
	}
	if !d.exists() || i >= d.capacity {
		return false
	}
	d.nfree += step
	d.group.free += step
	d.kind.free += step
	return !taken
}

// settle recomputes the slots of devices whose nodes or capacity have changed. For each
// it is told the first slot that somebody could not have before.
func (l *Ledger) settle(fresh map[*device]int) Event {
	var event Event
	for d := range fresh {
		free := false
		d.unlist()
		for _, s := range d.slots {
			gives, shows := l.recount(d, s, s.claimed())
			free = free || gives
			if shows {
				event.preemptible(d, s.index)
			}
		}
		d.list()
		if free {
			event.freed(d)
		}
	}
	for d := range fresh {
		event.add(l.endVain(d))
	}
	for d, first := range fresh {
		event.open(l, d, first, math.MaxInt32)
		l.totals.leftOut -= d.leftOut
		d.leftOut = d.notCounted()
		l.totals.leftOut += d.leftOut
		l.dropDevice(d)
	}
	return event
}

// recount recomputes whether the claim on a slot counts and whether the slot is free. It
// is told the claim that counted before. free is true if somebody may take the slot now,
// held if a holder can be preempted who could not be before.
func (l *Ledger) recount(d *device, s *slotState, before *claim) (free, held bool) {
	if s.claim != nil {
		c := s.claim
		c.counts = s.index < d.capacity && (d.reaches(c.node.name) || c.podless && c.node.choosesSlots())
	}
	if changed, taken := d.count(s.index); changed {
		free = d.take(s.index, taken)
	}
	if before == nil || before == s.claimed() {
		return free, false
	}
	if len(s.holders) > 0 && l.foreign(s, before) {
		_, held = l.minPreemptorPriority(d, s.index)
	}
	return free || d.waitsForNominee(s.index), held
}
