package configurationresources

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// The scheduler is killed at any point of a pod's cycle. The next one gives the
// slot away exactly if the API does not have the pod bound with it.
func TestSchedulerKilledAtAnyPoint(t *testing.T) {
	for killed, steps := range map[string]struct{ filter, reserve, bind bool }{
		"before Filter":                     {},
		"after Filter":                      {filter: true},
		"after Reserve":                     {filter: true, reserve: true},
		"after the bind, before news of it": {filter: true, reserve: true, bind: true},
	} {
		t.Run(killed, func(t *testing.T) {
			former, p := cameraRig(t), pod("p", "1")
			former.create(p)
			former.client.PrependReactor("create", "pods", bindInTracker(former.client))
			if steps.filter {
				state, _ := former.filter(p, "node-a")
				if steps.reserve {
					former.Reserve(former.ctx, state, p, "node-a")
				}
				if steps.bind {
					former.Bind(former.ctx, state, p, "node-a")
				}
			}
			next := cameraRig(t, stored(former.client, "p"))
			if next.cache.Holds("p-uid") != steps.bind || next.mayTake("node-b") == steps.bind {
				t.Errorf("p holds its slot: %v, another may take it: %v", next.cache.Holds("p-uid"), next.mayTake("node-b"))
			}
			if !steps.bind {
				next.schedule(p, "node-b")
			}
		})
	}
}

// The scheduler is killed after PostFilter chose a victim, at any point from there on.
// The next one evicts at most that victim, and keeps its slot for the preemptor as
// soon as it can know of it.
func TestSchedulerKilledWhilePreempting(t *testing.T) {
	type point struct {
		evicted, gone bool // what has become of the victim
		written       bool // the nomination
	}
	for killed, at := range map[string]point{
		"before the eviction":                      {},
		"before the eviction, nomination written":  {written: true},
		"the victim is ending":                     {evicted: true},
		"the victim is ending, nomination written": {evicted: true, written: true},
		"the victim is gone":                       {evicted: true, gone: true},
		"the victim is gone, nomination written":   {evicted: true, gone: true, written: true},
	} {
		synctestRun(t, killed, func(t *testing.T) {
			former, holder := preemptionRig(t)
			vip := important("vip")
			const node = "node-a"
			former.preempts(vip)
			synctest.Wait() // for the eviction
			former.wantDeleted("by the former", "holder")

			// What the API has of it.
			live := []*v1.Pod{vip}
			if at.written {
				live[0] = nominatedTo(vip, node)
			}
			switch {
			case !at.evicted:
				live = append(live, holder)
			case !at.gone:
				live = append(live, ending(holder))
			}
			next := cameraRig(t, live...)
			next.create(live...)
			if kept, _ := next.cache.NominatedNode("vip-uid"); (kept == node) != (at.evicted && at.written) {
				t.Errorf("slots are kept on %q from the start", kept)
			}
			if free := at.gone && !at.written; next.mayTake("node-b") != free {
				t.Errorf("another may take the slot before the preemptor is tried: %v, want %v", !free, free)
			}

			// The preemptor is tried, and again once the victim is gone.
			var evicted []string
			if !at.gone {
				next.preempts(live[0])
				synctest.Wait()
				if !at.evicted {
					evicted = []string{"holder"}
				}
				if next.mayTake("node-b") {
					t.Error("the slot is given to another while its holder lives")
				}
				next.cache.DeletePod(holder)
				if next.mayTake("node-b") {
					t.Error("the slot is given to another once its holder is gone")
				}
			}
			next.wantDeleted("by the next", evicted...)
			next.schedule(live[0], node)
			next.refused(important("another"), "node-b")
		})
	}
}
