package ledger

import (
	"math"
	"slices"
)

// Gain is what waiting pods may find more of than before. Resource names are without
// the akri.sh/ prefix, of Configurations and Instances.
type Gain struct {
	// Free are resources with slots that have become free, or that the pods for which
	// they are kept may take now.
	Free []string
	// Held are resources with slots that pods have, or that are kept for them, and that
	// only a pod of more than this priority may now get.
	Held map[string]int32
	// Displaced are the UIDs of pods for which slots were kept that they cannot have any
	// more. They have to preempt anew.
	Displaced []string
}

// Empty reports whether nothing was gained.
func (g Gain) Empty() bool { return len(g.Free)+len(g.Held)+len(g.Displaced) == 0 }

func (g *Gain) add(other Gain) {
	g.Free = append(g.Free, other.Free...)
	g.Displaced = append(g.Displaced, other.Displaced...)
	for name, above := range other.Held {
		g.hold(name, above)
	}
}

// free records that the device has slots to give that it had not before.
func (g *Gain) free(d *device) { g.Free = append(g.Free, d.kind.name, d.name) }

// held records that pods of more than this priority can have the device's slots.
func (g *Gain) held(d *device, above int32) {
	g.hold(d.kind.name, above)
	g.hold(d.name, above)
}

func (g *Gain) hold(name string, above int32) {
	if g.Held == nil {
		g.Held = map[string]int32{}
	}
	if lowest, known := g.Held[name]; !known || above < lowest {
		g.Held[name] = above
	}
}

// open records that pods may get slots of the device, from the first of them on, from
// where they could not before.
func (g *Gain) open(l *Ledger, d *device, first int) {
	free := false
	for i := first; i < d.capacity; i++ {
		free = free || d.free.has(i) || d.waitsForNominee(i)
		if above, ok := l.price(d, i); ok {
			g.held(d, above)
		}
	}
	if free {
		g.free(d)
	}
}

// price returns the priority that a pod has to exceed to get a slot that another has,
// or that is kept for another. It reports false when no priority helps, or none is
// needed, and for a slot of a pod that is going: its end is a gain.
func (l *Ledger) price(d *device, index int) (int32, bool) {
	s := d.at(index)
	if s == nil || !d.exists || index >= d.capacity || len(s.holders) > 1 || l.foreign(d, index, s.claim) {
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

// foreign reports whether the claim on the slot is none of its holders'.
func (l *Ledger) foreign(d *device, index int, claim string) bool {
	return claim != "" && !slices.ContainsFunc(d.at(index).holders, func(uid string) bool {
		p := l.pods[uid]
		return slices.ContainsFunc(p.holds, func(h hold) bool {
			return h.slot.Instance == d.name && h.slot.Index == index && p.owns(h, claim)
		})
	})
}
