package configurationresources

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Changes after which pods can preempt that could not before, though no slot is free:
// all of them are tried, and no others.
func TestWakesAllThatCanPreempt(t *testing.T) {
	const waiting = 100
	for name, test := range map[string]struct {
		usage  map[string]string // before
		change func(*rig)
	}{
		"a node reaches the device": {nil, func(r *rig) { r.instance("cam-1", nil, "node-a", "node-b") }},
		"a stranger's claim goes": {map[string]string{"cam-1-0": "C:stranger:node-b"},
			func(r *rig) { r.instance("cam-1", nil, "node-b") }},
		"both, while a round is under way": {map[string]string{"cam-1-0": "C:stranger:node-b"}, func(r *rig) {
			r.book.mu.Lock()
			r.book.rounds["cam"] = &round{above: nobody}
			r.book.next("cam", r.book.rounds["cam"])
			r.book.mu.Unlock()
			r.instance("cam-1", nil, "node-b")
			r.instance("cam-1", nil, "node-a", "node-b")
		}},
	} {
		for _, can := range []int{firstWoken / 2, 4 * firstWoken} {
			synctestRun(t, fmt.Sprintf("%s, and %d can", name, can), func(t *testing.T) {
				r := newRig(t)
				r.hold(t, "cam-1", withPriority(pod("holder", "1"), int32(waiting-can-1)), "node-b")
				r.instance("cam-1", test.usage, "node-b")
				want := r.awaitAll(waiting)[waiting-can:]
				test.change(r)
				if got := slices.Sorted(slices.Values(r.awake(time.Second))); !slices.Equal(got, want) {
					t.Errorf("woken: %v, want %v", got, want)
				}
			})
		}
	}
}

// A pod for which slots were kept that another has got, or that are gone, is tried at
// once, be there many that are more important.
func TestWakesTheDisplaced(t *testing.T) {
	for name, displace := range map[string]func(*testing.T, *rig){
		"a more important pod preempts for the same": func(t *testing.T, r *rig) {
			if node, status := r.postFilter(t, withPriority(pod("king", "1"), 1001)); node == "" {
				t.Fatalf("the king preempts nobody: %v", status)
			}
		},
		"another scheduler gives the slot away": func(t *testing.T, r *rig) {
			grant := ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: "cam-1"}}}}
			r.book.setPod(bound(t, pod("foreign", "1"), "node-b", grant))
		},
		"the device is gone":                 func(_ *testing.T, r *rig) { r.book.deleteInstance(instance("cam-1", "")) },
		"its node does not reach the device": func(_ *testing.T, r *rig) { r.instance("cam-1", nil, "node-c") },
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, _ := preemptionRig(t)
			vip := withPriority(pod("vip", "1"), 1000)
			r.book.setPod(vip)
			if node, status := r.postFilter(t, vip); node == "" {
				t.Fatalf("the vip preempts nobody: %v", status)
			}
			for i := range 2 * firstWoken {
				r.book.setPod(withPriority(pod(fmt.Sprint("more", i), "1"), 2000))
			}
			r.awake(time.Minute)
			displace(t, r)
			if got := r.awake(0); !slices.Contains(got, "vip") {
				t.Errorf("woken: %v, want the vip", got)
			}
		})
	}
}

// What is gained during a round is tried after it, also when pods that fail begin
// rounds of their own all the time.
func TestFailingPodsPutNoGainOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		names := r.awaitAll(3 * firstWoken)
		first, last := names[len(names)-1], names[0]
		r.instance("cam-1", nil, "node-a") // begins a round
		if got := r.awake(0); !slices.Contains(got, first) {
			t.Fatalf("woken: %v", got)
		}
		r.instance("cam-2", nil, "node-a")
		for range 8 {
			failed := withPriority(pod("failed", "1"), 1000)
			state := r.schedule(t, failed, "node-a")
			other := withPriority(pod(last, "1"), 0)
			if err := r.known.Add(other); err != nil {
				t.Fatal(err)
			}
			r.filter(other, "node-a") // it is tried meanwhile
			r.Unreserve(r.ctx, state, failed, "node-a")
			time.Sleep(roundInterval / 4)
		}
		if got := r.awake(0); !slices.Contains(got, first) {
			t.Errorf("woken within two rounds' time: %v; want %s, which the gain may help", got, first)
		}
	})
}
