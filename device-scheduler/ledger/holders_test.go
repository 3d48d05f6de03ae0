package ledger

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Whoever can write an assignment could else take gigabytes with one pod, of which
// the scheduler would die again after each restart.
func TestNamesOfFarSlotsTakeLittleMemory(t *testing.T) {
	const names, most = 100, 100 << 10
	a := Assignment{}
	for i := range names {
		a["main"] = append(a["main"], assignment.Grant{Resource: "cam", Ordinal: i, Slot: slot.Name{Instance: fmt.Sprint("cam-", i), Index: 9_999}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l := New()
	l.Observe(Pod{UID: "p"}, "a", a)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("%d slots took %d bytes, want at most %d", names, took, most)
	}
	if held := len(l.Holds("p")); held != names {
		t.Errorf("the pod holds %d slots, want %d", held, names)
	}
}

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
