package ledger

import (
	"cmp"
	"slices"

	"github.com/kubeslot/kubeslot/types/slot"
)

// DoubleAllocation is a slot that several pods are bound with: a scheduler that lost its
// lease, or another one, bound a pod late. Only one can keep it.
type DoubleAllocation struct {
	Slot   slot.Name
	Winner Pod
	Losers []Pod
}

// DoubleAllocationOf decides who keeps a slot: the pod that its node has claimed it for,
// else the one bound first, ties by UID. It returns nil when there are not
// several bound holders: a pod that is only assumed can still be left unbound.
func (l *Ledger) DoubleAllocationOf(s slot.Name) *DoubleAllocation {
	state := l.slot(s)
	if state == nil {
		return nil
	}
	holders := slices.DeleteFunc(slices.Clone(state.holders), func(p *podRecord) bool { return !p.bound })
	if len(holders) < 2 {
		return nil
	}
	claimed := func(p *podRecord) int {
		if c := state.claimed(); c != nil && p.owns(c) {
			return 0
		}
		return 1
	}
	slices.SortFunc(holders, func(a, b *podRecord) int {
		return cmp.Or(cmp.Compare(claimed(a), claimed(b)), cmp.Compare(a.Bound, b.Bound), cmp.Compare(a.UID, b.UID))
	})
	c := &DoubleAllocation{Slot: s, Winner: holders[0].Pod}
	for _, p := range holders[1:] {
		if !p.terminating {
			c.Losers = append(c.Losers, p.Pod)
		}
	}
	return c
}
