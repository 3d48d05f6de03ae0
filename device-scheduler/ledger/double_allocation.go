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

// DoubleAllocations decides who keeps each slot that several pods are bound with: the pod that
// its node has claimed it for, else the one bound first, ties by UID. Pods that are being deleted
// neither keep it nor have to go, and a pod that is only assumed can still be left unbound.
func (l *Ledger) DoubleAllocations() []*DoubleAllocation {
	var all []*DoubleAllocation
	for name, state := range l.doublyAllocated {
		ignored := func(p *podRecord) bool { return !p.bound || p.terminating }
		holders := slices.DeleteFunc(slices.Clone(state.holders), ignored)
		if len(holders) < 2 {
			continue
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
		d := &DoubleAllocation{Slot: name, Winner: holders[0].Pod}
		for _, p := range holders[1:] {
			d.Losers = append(d.Losers, p.Pod)
		}
		all = append(all, d)
	}
	return all
}
