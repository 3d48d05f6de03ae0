package ledger

import (
	"slices"
	"testing"

	"github.com/kubeslot/kubeslot/types/slot"
)

// A map's order is another each time, and what a pod holds must not be.
func TestHoldsEachSlotOnceInOrder(t *testing.T) {
	name := func(index int) slot.Name { return slot.Name{Instance: "cam-1", Index: index} }
	a := Assignment{
		"main":  {{Resource: "cam", Slot: name(1)}, {Resource: "cam", Slot: name(0)}},
		"side":  {{Resource: "cam-1", Slot: name(1)}, {Resource: "cam-1", Slot: name(2)}},
		"third": {{Resource: "cam", Slot: name(0)}},
	}
	want := []hold{{slot: name(0), cl: true}, {slot: name(1)}, {slot: name(2)}}
	for range 100 {
		if got := a.holds(); !slices.Equal(got, want) {
			t.Fatalf("holds %v, want %v", got, want)
		}
	}
}
