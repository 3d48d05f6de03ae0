package ledger

import (
	"math"
	"slices"
	"strings"
)

func (l *Ledger) device(name string) *device {
	d := l.devices[name]
	if d == nil {
		d = &device{name: strings.Clone(name)}
		l.devices[d.name] = d
	}
	return d
}

// dropDevice forgets a device of which nothing is known any more.
func (l *Ledger) dropDevice(d *device) {
	if d.exists() || d.reports != nil {
		return
	}
	for _, s := range d.known {
		if s.inUse() {
			return
		}
	}
	delete(l.devices, d.name)
	if d.kind != nil {
		delete(d.kind.devices, d)
		l.dropKind(d.kind)
	}
}

// forget drops what is kept of a slot that nobody uses any more, and the device with it.
func (l *Ledger) forget(d *device, i int) {
	if s := d.beyond[i]; s != nil && !s.inUse() {
		delete(d.beyond, i)
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
	if d.group != nil {
		d.group.slots += capacity - d.capacity
	}
	d.capacity = capacity
	d.grow(capacity)
}

func (d *device) grow(n int) {
	if n <= len(d.slots) {
		return
	}
	d.slots = append(d.slots, make([]slotState, n-len(d.slots))...)
	for i, s := range d.beyond {
		if i < n {
			d.slots[i] = *s
			delete(d.beyond, i)
		}
	}
}

// at returns what is known of slot i, nil when that is nothing.
func (d *device) at(i int) *slotState {
	if i < len(d.slots) {
		return &d.slots[i]
	}
	return d.beyond[i]
}

// known yields the slots of which at knows anything.
func (d *device) known(yield func(int, *slotState) bool) {
	for i := range d.slots {
		if !yield(i, &d.slots[i]) {
			return
		}
	}
	for i, s := range d.beyond {
		if !yield(i, s) {
			return
		}
	}
}

// fewSlots is more than most Instances have.
const fewSlots = 8

// know returns slot i for somebody to have, also when the device does not have it: an
// Instance may be seen after the pod or the claim, or shrink, and an assignment may be
// forged. One that names the last slots of thousands of Instances must not cost memory
// for all slots before these.
func (d *device) know(i int) *slotState {
	if i < fewSlots {
		d.grow(i + 1)
	}
	s := d.at(i)
	if s == nil {
		if d.beyond == nil {
			d.beyond = map[int]*slotState{}
		}
		s = &slotState{}
		d.beyond[i] = s
	}
	return s
}

// trim frees what is kept of slots that the device does not have and nobody uses.
func (d *device) trim() {
	n := max(d.capacity, fewSlots)
	if n < len(d.slots) {
		rest := d.slots[n:]
		d.slots = slices.Clone(d.slots[:n])
		for i := range rest {
			if rest[i].inUse() {
				*d.know(n + i) = rest[i]
			}
		}
	}
	for i, s := range d.beyond {
		if !s.inUse() {
			delete(d.beyond, i)
		}
	}
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

// available reports whether nobody has slot i of those that the device gives.
func (d *device) available(i int) bool {
	s := d.at(i)
	return d.exists() && i < d.capacity && len(s.holders) == 0 && s.claimed() == nil
}

// waitsForNominee reports whether slot i would be free, were it not kept for a
// pod that preempted: it is that pod's turn.
func (d *device) waitsForNominee(i int) bool { return d.at(i).nominee != "" && d.available(i) }

// refresh recomputes whether slot i is free and keeps the order right. It
// reports whether the slot became free.
func (d *device) refresh(i int) bool {
	if (d.available(i) && d.at(i).nominee == "") == d.free.has(i) {
		return false
	}
	d.unlist()
	defer d.list()
	return d.count(i)
}

// count is refresh without the order.
func (d *device) count(i int) bool {
	free := d.available(i) && d.at(i).nominee == ""
	if free == d.free.has(i) {
		return false
	}
	step := 1
	if free {
		d.free.set(i)
	} else {
		d.free.clear(i)
		step = -1
	}
	d.nfree += step
	if d.group != nil {
		d.group.free += step
		d.kind.free += step
	}
	return free
}

// settle recomputes the slots of devices whose nodes or capacity have changed. For each
// it is told the first slot that somebody could not have before.
func (l *Ledger) settle(fresh map[*device]int) Event {
	var event Event
	for d := range fresh {
		free := false
		d.unlist()
		for i, s := range d.known {
			gives, shows := l.recount(d, i, s.claimed())
			free = free || gives
			if shows {
				event.preemptible(d, i)
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
		d.trim()
		l.dropDevice(d)
	}
	return event
}

// recount recomputes whether the claim on slot i counts and whether the slot is free. It
// is told the claim that counted before. free is true if somebody may take the slot now,
// held if a holder can be preempted who could not be before.
func (l *Ledger) recount(d *device, i int, before *claim) (free, held bool) {
	s := d.at(i)
	if s.claim != nil {
		s.claim.counts = i < d.capacity && d.reaches(s.claim.node.name)
	}
	free = d.count(i)
	if before == nil || before == s.claimed() {
		return free, false
	}
	if len(s.holders) > 0 && l.foreign(d, i, before) {
		_, held = l.minPreemptorPriority(d, i)
	}
	return free || d.waitsForNominee(i), held
}
