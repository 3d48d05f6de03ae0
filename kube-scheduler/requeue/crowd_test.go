package requeue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/slot"
)

// 5,000 pods of 100 priorities wait for one slot that is freed again and again. The first in order
// that is tried takes it. Each time one batch is activated, of the most important ones, and
// nobody gets it before one that is more important.
func TestFiveThousandWait(t *testing.T) {
	const priorities, slots = 100, 200
	waiting := 5000
	if testing.Short() { // 5,000 take a minute with the race detector: make test-all has them
		waiting = 500
	}
	r := newRig()
	priorityOf := map[string]int{}
	for i := range waiting {
		name := fmt.Sprintf("w%04d", i)
		p := pod(name)
		priority := int32(i * 37 % priorities)
		p.Spec.Priority, priorityOf[name] = &priority, int(priority)
		r.await(p, "x")
	}
	activated, last, most := 0, priorities, 0
	for got := range slots {
		r.free("x")
		batch := r.after(0)
		slices.SortFunc(batch, func(a, b string) int { return priorityOf[b] - priorityOf[a] })
		if len(batch) == 0 {
			t.Fatalf("nobody is activated for the slot after %d had it", got)
		}
		taker := batch[0]
		if priorityOf[taker] > last {
			t.Fatalf("%s of priority %d has the slot after one of priority %d", taker, priorityOf[taker], last)
		}
		last = priorityOf[taker]
		r.possible["x"] = nil
		r.Taken("x", slot.Name{Index: last + 1}) // who is more important could preempt it
		r.try(batch...)
		r.Delete(types.UID(taker))
		late := r.after(5 * time.Second) // until nothing is to come
		r.try(late...)
		activated += len(batch) + len(late)
		most = max(most, len(batch)+len(late))
	}
	if most > DefaultFirstBatch {
		t.Errorf("%d pods were activated for one slot, want at most %d", most, DefaultFirstBatch)
	}
	t.Logf("%d slots: %d pods activated, at most %d for one", slots, activated, most)
}
