package configurationresources

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Changes after which pods can preempt that could not before, though no slot is free:
// all of them are tried, and no others.
func TestActivatesAllThatCanPreempt(t *testing.T) {
	const waiting = 100
	for name, test := range map[string]struct {
		usage  map[string]string // before
		change func(*rig)
	}{
		"a node reaches the device": {nil, func(r *rig) { device(r.cache, "cam-000001", nil, "node-a", "node-b") }},
		"a stranger's claim goes": {map[string]string{"cam-000001-0": "C:stranger:node-b"},
			func(r *rig) { device(r.cache, "cam-000001", nil, "node-b") }},
	} {
		for _, can := range []int{requeue.DefaultFirstBatch / 2, 4 * requeue.DefaultFirstBatch} {
			synctestRun(t, fmt.Sprintf("%s, and %d can", name, can), func(t *testing.T) {
				r := newRig(t)
				r.hold(t, "cam-000001", withPriority(pod("holder", "1"), int32(waiting-can-1)), "node-b")
				device(r.cache, "cam-000001", test.usage, "node-b")
				want := r.awaitAll(waiting)[waiting-can:]
				never, policy := withPriority(pod("never", "1"), waiting), v1.PreemptNever
				never.Spec.PreemptionPolicy = &policy
				r.cache.SetPod(never)
				test.change(r)
				if got := slices.Sorted(slices.Values(r.requeuedWithin(time.Second))); !slices.Equal(got, want) {
					t.Errorf("activated: %v, want %v", got, want)
				}
			})
		}
	}
}

// A pod for which slots were kept that another has got, or that are gone, is tried at
// once, be there many that are more important.
func TestActivatesTheDisplaced(t *testing.T) {
	for name, displace := range map[string]func(*testing.T, *rig){
		"a more important pod preempts for the same": func(t *testing.T, r *rig) {
			r.preempts(t, withPriority(pod("king", "1"), 1001))
		},
		"another scheduler gives the slot away": func(t *testing.T, r *rig) {
			grant := ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: "cam-000001"}}}}
			r.cache.SetPod(bound(t, pod("foreign", "1"), "node-b", grant))
		},
		"the device is gone":                 func(_ *testing.T, r *rig) { device(r.cache, "cam-000001", nil) },
		"its node does not reach the device": func(_ *testing.T, r *rig) { device(r.cache, "cam-000001", nil, "node-c") },
	} {
		synctestRun(t, name, func(t *testing.T) {
			r, _ := preemptionRig(t)
			vip := withPriority(pod("vip", "1"), 1000)
			r.cache.SetPod(vip)
			r.preempts(t, vip)
			for i := range 2 * requeue.DefaultFirstBatch {
				r.cache.SetPod(withPriority(pod(fmt.Sprint("more", i), "1"), 2000))
			}
			r.requeuedWithin(time.Minute)
			displace(t, r)
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
			r.preempts(t, one)
			if node, _ := r.postFilter(t, other); node != "" {
				t.Fatalf("the slots are kept for one, and the other is nominated to %s", node)
			}
			r.preempts(t, one) // it is tried meanwhile, too
			r.requeuedWithin(0)
			evicting <- struct{}{}
			if got := r.requeuedWithin(0); !slices.Contains(got, "other") || slices.Contains(got, "one") {
				t.Errorf("activated when one has failed: %v, want only the other", got)
			}
			r.preempts(t, other)
			evicting <- struct{}{}
			if got := r.requeuedWithin(0); len(got) != 0 {
				t.Errorf("activated when the other has failed: %v", got)
			}
			if got := slices.Sorted(slices.Values(r.requeuedWithin(2 * requeue.RetryInterval))); !slices.Equal(got, []string{"one", "other"}) {
				t.Errorf("activated in a while: %v", got)
			}
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
		r.preempts(t, vip)
		device(r.cache, "cam-000001", nil) // that displaces it
		r.hold(t, "cam-000002", pod("holder2", "1"), "node-a", "node-b")
		node := r.preempts(t, vip)
		late <- struct{}{}
		synctest.Wait()
		if got := r.cache.NominatedNode("vip-uid"); got != node {
			t.Errorf("slots are kept on %q, want %q", got, node)
		}
	})
}

// What is kept for a nominated pod does not count as free. The pod is tried all the same.
func TestKeptSlotBecomesFree(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.cache.SetPod(vip)
	r.preempts(t, vip)
	for i := range 2 * requeue.DefaultFirstBatch {
		r.cache.SetPod(pod(fmt.Sprintf("p%03d", i), "1"))
	}
	r.requeued()
	r.cache.DeletePod(holder)
	if free := ledgerOf(r.cache).Free("cam"); free != 0 {
		t.Fatalf("%d slots are free, want the one to be kept", free)
	}
	if got := r.requeued(); !slices.Equal(got, []string{"vip"}) {
		t.Errorf("activated %v, want the nominated pod", got)
	}
}
