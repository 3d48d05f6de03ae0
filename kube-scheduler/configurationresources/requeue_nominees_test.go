package configurationresources

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
)

// A free slot is kept for a pod before all that wait have been activated: those above that
// pod are.
func TestKeptBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		want := r.awaitAll(100)[50:]
		device(r.cache, "cam-000001", nil, "node-a")
		nominee := withPriority(pod("nominee", "1"), 49)
		r.cache.SetPod(nominatedTo(nominee, "node-a"))
		if got := r.requeuedWithin(time.Second); !slices.Equal(got, append([]string{"nominee"}, want...)) {
			t.Errorf("activated: %v, want the nominee and %v", got, want)
		}
	})
}

// A slot is kept for a pod, and more important ones were refused before that or since,
// for a still more important pod that had it, or for the claim that this left. They are
// tried when the first has it.
func TestRefusedBeforeTheNomineeHasIt(t *testing.T) {
	for name, test := range map[string]struct {
		priority int32 // of the pod that has the slot first
		early    bool  // when the others are refused
	}{
		"the first holder was more important": {1000, true},
		"its claim stayed for a while":        {0, false},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			r.mayPreempt(t)
			holder := r.hold(t, "cam-000001", withPriority(pod("holder", "1"), test.priority), "node-a", "node-b")
			claim := map[string]string{"cam-000001-0": "C:holder-uid:node-b"}
			device(r.cache, "cam-000001", claim, "node-a", "node-b")
			nominee := withPriority(pod("nominee", "1"), 49)
			names := crowd(100)
			refuse := func() {
				for i, name := range names {
					p := withPriority(pod(name, "1"), int32(i))
					r.cache.SetPod(p)
					r.know(p)
					r.refused(t, p, "node-a")
				}
			}
			if test.early {
				refuse()
			}
			r.cache.SetPod(ending(holder))
			r.know(nominee)
			r.preempts(t, nominee)
			r.cache.DeletePod(holder)
			if !test.early {
				refuse()
			}
			r.requeuedWithin(time.Minute)
			device(r.cache, "cam-000001", nil, "node-a", "node-b")
			r.schedule(t, nominee, "node-a")
			activated := r.requeuedWithin(time.Second)
			for _, name := range names[50:] {
				if !slices.Contains(activated, name) {
					t.Fatalf("activated: %v, want also %s", activated, name)
				}
			}
			if slices.Contains(activated, names[49]) {
				t.Errorf("activated: %v; %s cannot preempt", activated, names[49])
			}
		})
	}
}

// DefaultPreemption evicts a pod for another, and a third gets the slot. The second is
// tried when its victim has gone, also when its nomination is shown only after that.
func TestVictimsSlotGoesToAnother(t *testing.T) {
	for name, late := range map[string]bool{"nominated before the victim goes": false, "nominated after": true} {
		synctestRun(t, name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			for i := range 2 * requeue.DefaultFirstBatch {
				r.cache.SetPod(withPriority(pod(fmt.Sprint("more", i), "1"), 2000))
			}
			vip, other := important("vip"), important("other")
			r.cache.SetPod(vip)
			r.preempts(t, other)
			shown := func() { r.cache.SetPod(nominatedTo(vip, "node-b")) }
			gone := func() { r.cache.SetPod(ending(holder)); r.cache.DeletePod(holder) }
			if late {
				gone()
				r.requeuedWithin(time.Minute)
				shown()
			} else {
				shown()
				r.requeuedWithin(time.Minute)
				gone()
			}
			if got := r.requeuedWithin(requeue.RetryInterval); !slices.Contains(got, "vip") {
				t.Errorf("activated: %v, want the vip", got)
			}
			r.cache.Queue.Try("vip-uid")
			r.cache.Queue.Asked("vip-uid")
			shown() // which is nothing new
			if got := r.requeuedWithin(time.Minute); slices.Contains(got, "vip") {
				t.Errorf("activated again: %v", got)
			}
		})
	}
}
