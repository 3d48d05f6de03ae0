package claims

import (
	"maps"
	"sync/atomic"
	"testing"

	"github.com/kubeslot/kubeslot/test/await"
)

// What a container uses, or the node has claimed, is held until the claim is gone, and who asks is
// notified of each change.
func TestHeld(t *testing.T) {
	a := newAPI(t, 2, nil)
	var changes atomic.Int32
	f := start(t, a, &fakeRuntime{}, setup{heldChanged: func() { changes.Add(1) }})
	want := func(what string, instances ...string) {
		t.Helper()
		all := map[string]bool{}
		for _, i := range instances {
			all[i] = true
		}
		await.That(t, what, func() bool {
			held, known := f.Held()
			return known && maps.Equal(held, all) && changes.Swap(0) > 0
		})
	}
	want("nothing to be held")
	f.mustCreate(t, "c1", "p1", "cam", "cam-8120fe-0")
	want("the container's device to be held", "cam-8120fe")
	f.mustCreate(t, "c2", "p2", "cam", "cam-a19705-0")
	want("both devices to be held", "cam-8120fe", "cam-a19705")
	f.remove("c1")
	want("the removed container's device to be free", "cam-a19705")
}

// While the runtime has not been asked, nothing is known to be free.
func TestHeldIsNotKnown(t *testing.T) {
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{down: true}, setup{})
	if held, known := f.Held(); known {
		t.Errorf("%v is held, before the runtime said so", held)
	}
}
