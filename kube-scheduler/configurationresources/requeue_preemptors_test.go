package configurationresources

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
)

// A pod for which slots were kept that another has got, or that are gone, is tried at
// once, be there many that are more important.
func TestActivatesTheDisplaced(t *testing.T) {
	for name, displace := range map[string]func(*rig){
		"a more important pod preempts for the same": func(r *rig) { r.preempts(withPriority(pod("king", "1"), 1001)) },
		"another scheduler gives the slot away":      func(r *rig) { r.cache.SetPod(bound(pod("foreign", "1"), "node-b", cam1)) },
		"the device is gone":                         func(r *rig) { device(r.cache, "cam-000001", nil) },
		"its node does not reach the device":         func(r *rig) { device(r.cache, "cam-000001", nil, "node-c") },
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, _ := preemptionRig(t)
			vip := withPriority(pod("vip", "1"), 1000)
			r.cache.SetPod(vip)
			r.preempts(vip)
			for i := range 2 * requeue.DefaultFirstBatch {
				r.await(withPriority(pod(fmt.Sprint("more", i), "1"), 2000))
			}
			r.requeuedWithin(time.Minute)
			displace(r)
			if got := r.requeuedWithin(0); !slices.Contains(got, "vip") {
				t.Errorf("activated: %v, want the vip", got)
			}
		})
	}
}

// Two pods that would preempt the same victim, which cannot be evicted: each is tried
// when the other has failed, if it was refused meanwhile, and again in a while. They do
// not activate each other all the time, nor a pod itself by what it gives back.
func TestFailedEvictionsActivateNobodyForEver(t *testing.T) {
	for what, quantity := range map[string]string{"its slot": "1", "its slot and a free one": "2"} {
		synctestRun(t, what, func(t *testing.T) {
			r, _ := preemptionRig(t)
			device(r.cache, "cam-000002", map[string]string{"cam-000002-0": "C:stranger:node-b"}, "node-a", "node-b")
			if quantity == "2" {
				device(r.cache, "cam-000002", nil, "node-a", "node-b")
			}
			evicting := make(chan struct{})
			r.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				<-evicting
				return true, nil, errors.New("a webhook denied the request")
			})
			one, other := withPriority(pod("one", quantity), 100), withPriority(pod("other", quantity), 100)
			r.know(one, other)
			r.preempts(one)
			if node, _ := r.postFilter(other); node != "" {
				t.Fatalf("the slots are kept for one, and the other is nominated to %s", node)
			}
			r.preempts(one) // it is tried meanwhile, too
			r.requeuedWithin(0)
			evicting <- struct{}{}
			r.wantActivatedWithin(0, "one has failed", "other")
			r.preempts(other)
			evicting <- struct{}{}
			r.wantActivatedWithin(0, "the other has failed")
			r.wantActivatedWithin(2*requeue.RetryInterval, "in a while", "one", "other")
		})
	}
}

// An eviction that fails late ends no nomination but its own.
func TestLateFailureOfAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := preemptionRig(t)
		late := make(chan struct{})
		r.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.(clienttesting.DeleteAction).GetName() != "holder" {
				return false, nil, nil
			}
			<-late
			return true, nil, errors.New("timed out")
		})
		vip := important("vip")
		r.preempts(vip)
		device(r.cache, "cam-000001", nil) // that displaces it
		r.hold("cam-000002", pod("holder2", "1"), "node-a", "node-b")
		r.preempts(vip)
		late <- struct{}{}
		synctest.Wait()
		r.wantKept("the first eviction failed", "node-a")
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
			holder := r.hold("cam-000001", withPriority(pod("holder", "1"), test.priority), "node-a", "node-b")
			claim := map[string]string{"cam-000001-0": "C:holder-uid:node-b"}
			device(r.cache, "cam-000001", claim, "node-a", "node-b")
			nominee := withPriority(pod("nominee", "1"), 49)
			names := crowd(100)
			refuse := func() {
				for i, name := range names {
					p := withPriority(pod(name, "1"), int32(i))
					r.cache.SetPod(p)
					r.know(p)
					r.refused(p, "node-a")
					r.cache.Queue.Asked(p.UID)
				}
			}
			if test.early {
				refuse()
			}
			r.cache.SetPod(ending(holder))
			r.know(nominee)
			r.preempts(nominee)
			r.cache.DeletePod(holder)
			if !test.early {
				refuse()
			}
			r.requeuedWithin(time.Minute)
			device(r.cache, "cam-000001", nil, "node-a", "node-b")
			r.schedule(nominee, "node-a")
			if got := slices.Sorted(slices.Values(r.requeuedInVain(time.Second))); !slices.Equal(got, names[50:]) {
				t.Errorf("activated %v, want those that can preempt the nominee", got)
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
				r.await(withPriority(pod(fmt.Sprint("more", i), "1"), 2000))
			}
			vip, other := important("vip"), important("other")
			r.await(vip)
			r.preempts(other)
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
