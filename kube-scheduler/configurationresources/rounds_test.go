package configurationresources

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Gains that follow each other closely are put into the next round, and that of a
// failed pod begins one at once: the last of those that wait is tried all the same.
func TestNoGainIsMissed(t *testing.T) {
	const waiting = 100
	crowd := func(t *testing.T) *rig {
		r := newRig(t)
		r.awaitAll(waiting)
		r.book.device("cam-00000b", nil, "node-b") // it stays free
		return r
	}
	times := func(r *rig, name string) (n int) {
		r.book.mu.Lock()
		defer r.book.mu.Unlock()
		for _, activated := range r.activated {
			if activated == name {
				n++
			}
		}
		return n
	}
	t.Run("gains without end", func(t *testing.T) {
		r, n := crowd(t), 0
		eventually(t, "the last pod to be tried", func() bool {
			usage := map[string]string{}
			if n++; n%2 == 0 {
				usage["cam-000001-0"] = "C:other:node-a"
			}
			r.book.device("cam-000001", usage, "node-a")
			return times(r, "p000") > 0
		})
	})
	t.Run("a pod that failed", func(t *testing.T) {
		r := crowd(t)
		failed, other := pod("failed", "1"), pod("p050", "1")
		state := r.schedule(t, failed, "node-b")
		if err := r.known.Add(other); err != nil {
			t.Fatal(err)
		}
		if _, status := r.filter(other, "node-b"); status.IsSuccess() {
			t.Fatal("two pods fit one slot")
		}
		r.book.mu.Lock()
		r.activated, r.book.rounds["cam"] = nil, &round{size: firstWoken, since: &gained{free: true}}
		r.book.mu.Unlock()
		r.Unreserve(r.ctx, state, failed, "node-b") // that wakes the other, which was refused meanwhile
		eventually(t, "the first to be tried for what was gained during the round", func() bool { return times(r, "p099") > 0 })
	})
}

// A pod takes what was freed, before all that wait have been tried. When it fails after
// Reserve, those are tried too.
func TestRoundThatMissedOutGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		waiting := crowdOf("p", 3*firstWoken)
		for _, name := range waiting {
			p := pod(name, "1")
			if err := r.known.Add(p); err != nil {
				t.Fatal(err)
			}
			if _, status := r.filter(p, "node-a"); status.IsSuccess() {
				t.Fatal("a pod fits, and there are no slots")
			}
		}
		last := pod(waiting[len(waiting)-1], "1") // it has failed before
		r.book.device("cam-000000", nil, "node-a")
		r.Unreserve(r.ctx, r.schedule(t, last, "node-a"), last, "node-a")
		r.book.device("cam-000000", nil)
		r.awake(time.Minute)
		r.book.device("cam-000001", nil, "node-a")
		taker := pod("taker", "1")
		state := r.schedule(t, taker, "node-a")
		if got := r.awake(time.Second); len(got) != firstWoken {
			t.Fatalf("woken while the slot is taken: %v", got)
		}
		r.Unreserve(r.ctx, state, taker, "node-a")
		missed := waiting[firstWoken:]
		if got := r.awake(time.Second); !slices.Equal(slices.Sorted(slices.Values(got)), missed) {
			t.Errorf("woken when it is given back: %v, want %v", got, missed)
		}
	})
}

// What is kept for a nominated pod does not count as free. When it is gained while a
// round is under way, the pod is tried after the round all the same.
func TestKeptSlotIsGainedDuringARound(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.book.setPod(vip)
	if node, status := r.postFilter(t, vip); node != "node-a" || !status.IsSuccess() {
		t.Fatalf("nominated to %q, %v", node, status)
	}
	for i := range 2 * firstWoken {
		r.book.setPod(pod(fmt.Sprintf("p%03d", i), "1"))
	}
	r.book.mu.Lock()
	r.book.begin("cam", &round{size: firstWoken, gained: gained{free: true}})
	r.activated = nil
	r.book.mu.Unlock()
	r.book.deletePod(holder)
	if free := r.book.ledger.Free("cam"); free != 0 {
		t.Fatalf("%d slots are free, want the one to be kept", free)
	}
	eventually(t, "the nominated pod to be tried", func() bool {
		r.book.mu.Lock()
		defer r.book.mu.Unlock()
		return slices.Contains(r.activated, "vip")
	})
}

// A round that goes on for what was gained during it goes on for what it was for, too.
func TestRoundsGoOnForAll(t *testing.T) {
	const waiting = 100
	free := func(r *rig) { r.book.device("cam-000001", nil, "node-a") } // and nobody takes it
	for name, test := range map[string]struct {
		begin, meanwhile func(*rig)
		want             int
	}{
		"pods are tried for something else": {free, func(r *rig) {
			r.book.mu.Lock()
			defer r.book.mu.Unlock()
			r.book.try("cam", &gained{}, r.book.helped("cam", &gained{free: true})[:1])
		}, waiting},
		"a gain that helps nobody":                           {free, func(r *rig) { r.book.device("cam-000002", nil, "node-a", "node-b") }, waiting},
		"a gain that helps nobody, in a round of preemptors": {func(r *rig) { r.book.device("cam-000003", nil, "node-a", "node-b") }, func(r *rig) { r.book.device("cam-000002", nil, "node-a", "node-b") }, waiting / 2},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			r.hold(t, "cam-000002", withPriority(pod("holder2", "1"), 1000), "node-b")
			r.hold(t, "cam-000003", withPriority(pod("holder3", "1"), waiting/2-1), "node-b")
			want := r.awaitAll(waiting)[waiting-test.want:]
			test.begin(r)
			test.meanwhile(r)
			woken := slices.Sorted(slices.Values(r.awake(time.Second)))
			if got := slices.Compact(woken); !slices.Equal(got, want) {
				t.Errorf("woken: %v, want %v", got, want)
			}
		})
	}
}
