package ledger

import (
	"math"
	"slices"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Gain is what waiting pods may find more of than before.
type Gain struct {
	// Free are resources with slots that have become free, or that the pods for which
	// they are kept may take now: names without the akri.sh/ prefix, of Configurations
	// and Instances.
	Free []string
	// Held are slots that others have, or that are kept for others, and that some pods of
	// more than their Price may have now, or once they are free, and could not before.
	Held []slot.Name
	// Displaced are the UIDs of pods for which slots were kept that they cannot have any
	// more. They have to look for others.
	Displaced []string
}

// Empty reports whether nothing was gained.
func (g Gain) Empty() bool { return len(g.Free)+len(g.Held)+len(g.Displaced) == 0 }

func (g *Gain) add(other Gain) {
	g.Free = append(g.Free, other.Free...)
	g.Held = append(g.Held, other.Held...)
	g.Displaced = append(g.Displaced, other.Displaced...)
}

// free records that the device has slots to give that it had not before.
func (g *Gain) free(d *device) { g.Free = append(g.Free, d.kind.name, d.name) }

func (g *Gain) held(d *device, index int) {
	g.Held = append(g.Held, slot.Name{Instance: d.name, Index: index})
}

// open records the device's slots, from the first on, as if nobody could have had any of
// them before: those that are free, and those of pods less important than that priority.
func (g *Gain) open(l *Ledger, d *device, first int, upTo int32) {
	free := false
	for i := first; i < d.capacity; i++ {
		free = free || d.free.has(i) || d.waitsForNominee(i)
		if above, ok := l.price(d, i); ok && above < upTo {
			g.held(d, i)
		}
	}
	if free {
		g.free(d)
	}
}

// Price returns the priority that a pod has to exceed to get a slot that another has,
// or that is kept for another. It reports false when no priority helps, or none is
// needed, and for a slot of a pod that is going: its end is a gain.
func (l *Ledger) Price(s slot.Name) (int32, bool) {
	d := l.devices[s.Instance]
	if d == nil {
		return 0, false
	}
	return l.price(d, s.Index)
}

func (l *Ledger) price(d *device, index int) (int32, bool) {
	s := d.at(index)
	if s == nil || !d.exists() || index >= d.capacity || len(s.holders) > 1 || l.foreign(d, index, s.claimed()) {
		return 0, false
	}
	above, taken := int32(math.MinInt32), false
	if len(s.holders) == 1 {
		p := l.pods[s.holders[0]]
		if p.ending {
			return 0, false
		}
		above, taken = p.Priority, true
	}
	if n := l.nominations[s.nominee]; n != nil {
		above, taken = max(above, n.Priority), true
	}
	return above, taken
}

// Undecided returns the UIDs of pods that have the slot and may have to give it back: one
// that is only assumed to be bound, and one that the slot is kept for.
func (l *Ledger) Undecided(s slot.Name) []string {
	var uids []string
	d := l.devices[s.Instance]
	if d == nil || d.at(s.Index) == nil {
		return nil
	}
	for _, uid := range d.at(s.Index).holders {
		if !l.pods[uid].bound {
			uids = append(uids, uid)
		}
	}
	if nominee := d.at(s.Index).nominee; nominee != "" {
		uids = append(uids, nominee)
	}
	return uids
}

// foreign reports whether the claim on the slot is none of its holders'.
func (l *Ledger) foreign(d *device, index int, c *claim) bool {
	return c != nil && !slices.ContainsFunc(d.at(index).holders, func(uid string) bool { return l.pods[uid].owns(c) })
}

// Resources are the names by which pods ask for slots of the Instance, without the
// akri.sh/ prefix; none when it does not exist.
func (l *Ledger) Resources(instance string) []string {
	d := l.devices[instance]
	if d == nil || !d.exists() {
		return nil
	}
	return []string{d.kind.name, d.name}
}
