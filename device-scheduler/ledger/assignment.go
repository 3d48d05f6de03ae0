package ledger

import (
	"slices"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Assignment is the slots of a pod's containers, by container name.
type Assignment map[string][]assignment.Grant

// holds returns each slot once, in order. One that is assigned at both levels, as no
// scheduler does, is held at the Instance's.
func (a Assignment) holds() []hold {
	var holds []hold
	for _, grants := range a {
		for _, g := range grants {
			holds = append(holds, hold{slot: g.Slot, cl: !g.InstanceLevel()})
		}
	}
	slices.SortFunc(holds, hold.compare)
	return slices.CompactFunc(holds, func(a, b hold) bool { return a.slot == b.slot })
}

func (h hold) compare(o hold) int {
	if order := compareSlots(h.slot, o.slot); order != 0 || h.cl == o.cl {
		return order
	}
	if h.cl {
		return 1
	}
	return -1
}

// Slots are those assigned, each once, in order.
func (a Assignment) Slots() []slot.Name { return slotsOf(a.holds()) }

func slotsOf(holds []hold) []slot.Name {
	slots := make([]slot.Name, len(holds))
	for i, h := range holds {
		slots[i] = h.slot
	}
	return slots
}
