package ledger

import (
	"math"

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
}

// Empty reports whether the change helps no pod.
func (e Event) Empty() bool { return len(e.Freed)+len(e.Preemptible)+len(e.Displaced) == 0 }

func (e *Event) add(other Event) {
	e.Freed = append(e.Freed, other.Freed...)
	e.Preemptible = append(e.Preemptible, other.Preemptible...)
	e.Displaced = append(e.Displaced, other.Displaced...)
}

// freed records that slots of the device became free.
func (e *Event) freed(d *device) { e.Freed = append(e.Freed, d.config.name, d.name) }

func (e *Event) preemptible(d *device, index int) {
	e.Preemptible = append(e.Preemptible, slot.Name{Instance: d.name, Index: index})
}

// open records the device's slots from the first on, as if no pod could have had them
// before: the free ones, and those that a pod of at most that priority can preempt for.
func (e *Event) open(l *Ledger, d *device, first int, upTo int32) {
	free := d.exists() && d.capacity-first > d.taken.below(d.capacity)-d.taken.below(first)
	for _, s := range d.slots {
		if s.index < first {
			continue
		}
		free = free || d.waitsForNominee(s.index)
		if least, ok := l.minPreemptorPriority(d, s.index); ok && least <= upTo {
			e.preemptible(d, s.index)
		}
	}
	if free {
		e.freed(d)
	}
}

// MinPreemptorPriority returns the lowest priority with which a pod can get a slot that
// another pod holds, or that is nominated for another. It reports false when no priority
// helps, when none is needed, and when the holder is terminating: its end is an event of
// its own.
func (l *Ledger) MinPreemptorPriority(s slot.Name) (int32, bool) {
	d := l.devices[s.Instance]
	if d == nil {
		return 0, false
	}
	return l.minPreemptorPriority(d, s.Index)
}

func (l *Ledger) minPreemptorPriority(d *device, index int) (int32, bool) {
	s := d.at(index)
	if s == nil || !d.exists() || index >= d.capacity || len(s.holders) > 1 || l.foreign(s, s.claimed()) {
		return 0, false
	}
	highest, taken := int32(math.MinInt32), false
	if len(s.holders) == 1 {
		p := l.pods[s.holders[0]]
		if p.terminating {
			return 0, false
		}
		highest, taken = p.Priority, true
	}
	if n := s.nominee; n != nil {
		highest, taken = max(highest, n.Priority), true
	}
	if !taken || highest == math.MaxInt32 {
		return 0, false
	}
	return highest + 1, true
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
