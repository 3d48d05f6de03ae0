package ledger

import (
	"math"
	"slices"

	"github.com/kubeslot/kubeslot/types/slot"
)

// exists reports whether any node reaches the device: only then it gives slots.
func (d *device) exists() bool { return d.group != nil }

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

// slot returns what is known of a slot, nil when nobody has it.
func (l *Ledger) slot(s slot.Name) *slotState {
	if d := l.devices[s.Instance]; d != nil {
		return d.at(s.Index)
	}
	return nil
}

// know returns slot i for somebody to have, also when the device does not have it: an
// Instance may be seen after the pod or the claim, or shrink, and an assignment may be
// forged.
func (d *device) know(i int) *slotState {
	at, found := d.find(i)
	if !found {
		if d.usage == notInUse {
			d.usage = &usage{}
		}
		s := &slotState{index: i}
		s.access = d.access(s)
		d.slots = slices.Insert(d.slots, at, s)
	}
	return d.slots[at]
}

// inUse reports whether somebody has the slot, or is to have it.
func (s *slotState) inUse() bool { return len(s.holders) > 0 || s.claim != nil || s.nominee != nil }

// claimed returns the claim on the slot that counts, nil when there is none.
func (s *slotState) claimed() *claim {
	if s.claim == nil || !s.claim.counts {
		return nil
	}
	return s.claim
}

// owns reports whether a claim on a slot that the pod holds is the pod's own, or none.
func (p *podRecord) owns(c *claim) bool {
	return c == nil || c.holder == p.UID && c.node.name == p.node
}

// foreign reports whether the claim on the slot counts and is none of its holders'.
func (s *slotState) foreign() bool {
	c := s.claimed()
	return c != nil && !slices.ContainsFunc(s.holders, func(p *podRecord) bool { return p.owns(c) })
}

// keepsFrom reports whether the nomination keeps its slots from the pod: not from the
// nominee itself, and not from pods of higher priority.
func (n *nomination) keepsFrom(pod Pod) bool {
	return n != nil && n.UID != pod.UID && n.Priority >= pod.Priority
}

// keptFor counts the device's slots that only nominations keep from being free, and not from
// the pod.
func (d *device) keptFor(pod Pod) int {
	n := 0
	for _, s := range d.config.waiting[d] {
		if !d.withheld && !s.nominee.keepsFrom(pod) {
			n++
		}
	}
	return n
}

// freeFor reports whether the device gives slot i, nobody has it, and it is not kept from the pod.
func (d *device) freeFor(pod Pod, i int) bool {
	s := d.at(i)
	return d.exists() && !d.withheld && i < d.capacity &&
		(s == nil || len(s.holders) == 0 && s.claimed() == nil && !s.nominee.keepsFrom(pod))
}

// access is which pods can have a slot, be it by preemption: those of at least the priority.
type access struct {
	some     bool // else no pod can
	priority int32
}

// access returns which pods can have the slot. A holder that is terminating counts like any other.
func (d *device) access(s *slotState) access {
	if !d.exists() || d.withheld || s.index >= d.capacity || len(s.holders) > 1 || s.foreign() {
		return access{}
	}
	highest := int64(math.MinInt32) - 1 // of those who have the slot
	for _, p := range s.holders {
		highest = int64(p.Priority)
	}
	if s.nominee != nil {
		highest = max(highest, int64(s.nominee.Priority))
	}
	return access{some: highest < math.MaxInt32, priority: int32(highest + 1)}
}

// wider reports whether pods can have a slot that could not before.
func (a access) wider(before access) bool {
	return a.some && (!before.some || a.priority < before.priority)
}

func (d *device) minPreemptorPriority(s *slotState) (int32, bool) {
	taken := len(s.holders) > 0 || s.nominee != nil
	terminating := len(s.holders) > 0 && s.holders[0].terminating
	a := d.access(s)
	return a.priority, a.some && taken && !terminating
}
