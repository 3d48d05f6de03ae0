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
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
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
			if node, status := r.postFilter(t, vip); node == "" {
				t.Fatalf("the vip preempts nobody: %v", status)
			}
			for i := range 2 * requeue.DefaultFirstBatch {
				r.cache.SetPod(withPriority(pod(fmt.Sprint("more", i), "1"), 2000))
			}
			r.awake(time.Minute)
			displace(t, r)
			if got := r.awake(0); !slices.Contains(got, "vip") {
				t.Errorf("woken: %v, want the vip", got)
			}
		})
	}
}

// A pod fails, and another takes what it gave back: those that can preempt for something else are tried all the same.
func TestFailingPodLeavesPreemptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.hold(t, "cam-000001", withPriority(pod("holder", "1"), 49), "node-b")
		device(r.cache, "cam-000002", nil, "node-c")
		failed := withPriority(pod("failed", "1"), 1000)
		state := r.schedule(t, failed, "node-c")
		want := r.awaitAll(100)[50:]
		first := withPriority(pod("p099", "1"), 99)
		if err := r.known.Add(first); err != nil {
			t.Fatal(err)
		}
		if _, status := r.filter(first, "node-c"); status.IsSuccess() {
			t.Fatal("two pods fit one slot")
		}
		device(r.cache, "cam-000001", nil, "node-a", "node-b")
		r.Unreserve(r.ctx, state, failed, "node-c")
		r.schedule(t, withPriority(pod("taker", "1"), 1000), "node-c")
		woken := slices.Sorted(slices.Values(r.awake(time.Second)))
		if got := slices.Compact(woken); !slices.Equal(got, want) {
			t.Errorf("woken: %v, want %v", got, want)
		}
	})
}

// A node begins to reach a slot that a pod is only about to have. A less important pod,
// which was refused before, is not told; it is when the slot is given back.
func TestToldWhenTheSlotIsGivenBack(t *testing.T) {
	for name, about := range map[string]func(*testing.T, *rig) (giveBack func()){
		"it is assumed": func(t *testing.T, r *rig) func() {
			device(r.cache, "cam-000001", nil, "node-b")
			taker := withPriority(pod("taker", "1"), 50)
			if err := r.known.Add(taker); err != nil {
				t.Fatal(err)
			}
			state := r.schedule(t, taker, "node-b")
			return func() { r.Unreserve(r.ctx, state, taker, "node-b") }
		},
		"it is kept": func(t *testing.T, r *rig) func() {
			r.mayPreempt(t)
			r.hold(t, "cam-000001", pod("holder", "1"), "node-b")
			vip := withPriority(pod("vip", "1"), 50)
			r.cache.SetPod(vip)
			req, err := slotrequest.Of(vip)
			if err != nil {
				t.Fatal(err)
			}
			_, nomination := r.preemption.Preempt(r.ctx, req, []string{"node-b"}, ledger.Spread, time.Hour)
			return func() { r.cache.InVain(vip, nomination) }
		},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			unimportant := withPriority(pod("unimportant", "1"), 10)
			if err := r.known.Add(unimportant); err != nil {
				t.Fatal(err)
			}
			if _, status := r.filter(unimportant, "node-a"); status.IsSuccess() {
				t.Fatal("a pod fits, and there are no slots")
			}
			giveBack := about(t, r)
			r.awake(time.Minute)
			device(r.cache, "cam-000001", nil, "node-a", "node-b")
			if got := r.awake(0); slices.Contains(got, "unimportant") {
				t.Errorf("woken while it can have nothing: %v", got)
			}
			giveBack()
			if got := r.awake(0); !slices.Contains(got, "unimportant") {
				t.Errorf("woken: %v, want the unimportant pod", got)
			}
		})
	}
}

// A slot for which many can preempt is preempted for by the first: the others are not
// tried. Events that help none of those that wait do not have more of them tried either.
func TestBatchesOfPreemptorsEnd(t *testing.T) {
	preempt := func(t *testing.T, r *rig) {
		if node, status := r.postFilter(t, withPriority(pod("p099", "1"), 99)); node == "" {
			t.Fatalf("the first preempts nobody: %v", status)
		}
	}
	for what, test := range map[string]struct {
		elsewhere []string // cameras with a free slot
		change    func(*testing.T, *rig)
	}{
		"preempted for": {nil, preempt},
		"preempted for, and a slot is free elsewhere": {[]string{"cam-000002"}, preempt},
		"the holder goes by itself":                   {nil, func(t *testing.T, r *rig) { r.cache.SetPod(ending(bound(t, pod("holder", "1"), "node-b", nil))) }},
	} {
		synctestRun(t, what, func(t *testing.T) {
			r := newRig(t)
			r.mayPreempt(t)
			r.hold(t, "cam-000001", pod("holder", "1"), "node-b")
			for _, name := range test.elsewhere {
				device(r.cache, name, nil, "node-c")
			}
			r.awaitAll(100)
			device(r.cache, "cam-000001", nil, "node-a", "node-b")
			woken := r.awake(0)
			test.change(t, r)
			woken = append(woken, r.awake(time.Second)...)
			slices.Sort(woken)
			if got := slices.Compact(woken); len(got) != requeue.DefaultFirstBatch {
				t.Errorf("woken: %v, want the first %d", got, requeue.DefaultFirstBatch)
			}
		})
	}
	synctestRun(t, "events that do not help", func(t *testing.T) {
		r := newRig(t)
		r.hold(t, "cam-000002", withPriority(pod("holder", "1"), 1000), "node-b")
		r.awaitAll(100)
		device(r.cache, "cam-000001", nil, "node-a")
		woken := r.awake(0)
		r.schedule(t, withPriority(pod("taker", "1"), 100), "node-a")
		for range 20 {
			device(r.cache, "cam-000002", map[string]string{"cam-000002-0": "C:stranger:node-b"}, "node-b")
			device(r.cache, "cam-000002", nil, "node-b")
			woken = append(woken, r.awake(requeue.BatchInterval/2)...)
		}
		slices.Sort(woken)
		if woken = slices.Compact(woken); len(woken) != requeue.DefaultFirstBatch {
			t.Errorf("woken: %v, want the first %d", woken, requeue.DefaultFirstBatch)
		}
	})
}

// Two pods that would preempt the same victim, which cannot be evicted: each is tried
// when the other has failed, if it was refused meanwhile, and again in a while. They do
// not wake each other all the time, nor a pod itself by what it gives back.
func TestFailedEvictionsWakeNobodyForEver(t *testing.T) {
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
			if err := errors.Join(r.known.Add(one), r.known.Add(other)); err != nil {
				t.Fatal(err)
			}
			if node, status := r.postFilter(t, one); node == "" {
				t.Fatalf("one preempts nobody: %v", status)
			}
			if node, _ := r.postFilter(t, other); node != "" {
				t.Fatalf("the slots are kept for one, and the other is nominated to %s", node)
			}
			if node, status := r.postFilter(t, one); node == "" { // it is tried meanwhile, too
				t.Fatalf("one is nominated no more: %v", status)
			}
			r.awake(0)
			evicting <- struct{}{}
			if got := r.awake(0); !slices.Contains(got, "other") || slices.Contains(got, "one") {
				t.Errorf("woken when one has failed: %v, want only the other", got)
			}
			if node, status := r.postFilter(t, other); node == "" {
				t.Fatalf("the other preempts nobody: %v", status)
			}
			evicting <- struct{}{}
			if got := r.awake(0); len(got) != 0 {
				t.Errorf("woken when the other has failed: %v", got)
			}
			if got := slices.Sorted(slices.Values(r.awake(2 * requeue.RetryInterval))); !slices.Equal(got, []string{"one", "other"}) {
				t.Errorf("woken in a while: %v", got)
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
		if node, status := r.postFilter(t, vip); node == "" {
			t.Fatalf("the vip preempts nobody: %v", status)
		}
		device(r.cache, "cam-000001", nil) // that displaces it
		r.hold(t, "cam-000002", pod("holder2", "1"), "node-a", "node-b")
		node, status := r.postFilter(t, vip)
		if node == "" {
			t.Fatalf("the vip preempts nobody: %v", status)
		}
		late <- struct{}{}
		synctest.Wait()
		if got := r.cache.NominatedNode("vip-uid"); got != node {
			t.Errorf("slots are kept on %q, want %q", got, node)
		}
	})
}

// A pod takes what was freed, before all that wait have been tried. When it fails after
// Reserve, those are tried too.
func TestGivenBackHelpsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		waiting := crowdOf("p", 3*requeue.DefaultFirstBatch)
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
		device(r.cache, "cam-000000", nil, "node-a")
		r.Unreserve(r.ctx, r.schedule(t, last, "node-a"), last, "node-a")
		device(r.cache, "cam-000000", nil)
		r.filter(last, "node-a") // the framework has it tried again
		r.awake(time.Minute)
		device(r.cache, "cam-000001", nil, "node-a")
		first := r.awake(0)
		taker := pod("taker", "1")
		state := r.schedule(t, taker, "node-a")
		if got := slices.Compact(slices.Sorted(slices.Values(append(first, r.awake(time.Second)...)))); len(got) != requeue.DefaultFirstBatch {
			t.Fatalf("woken while the slot is taken: %v", got)
		}
		r.Unreserve(r.ctx, state, taker, "node-a")
		missed := waiting[requeue.DefaultFirstBatch:]
		woken := r.awake(time.Second)
		for _, name := range missed {
			if !slices.Contains(woken, name) {
				t.Fatalf("woken when it is given back: %v, want also %s", woken, name)
			}
		}
	})
}

// What is kept for a nominated pod does not count as free. The pod is tried all the same.
func TestKeptSlotBecomesFree(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.cache.SetPod(vip)
	if node, status := r.postFilter(t, vip); node != "node-a" || !status.IsSuccess() {
		t.Fatalf("nominated to %q, %v", node, status)
	}
	for i := range 2 * requeue.DefaultFirstBatch {
		r.cache.SetPod(pod(fmt.Sprintf("p%03d", i), "1"))
	}
	r.woken()
	r.cache.DeletePod(holder)
	if free := ledgerOf(r.cache).Free("cam"); free != 0 {
		t.Fatalf("%d slots are free, want the one to be kept", free)
	}
	if got := r.woken(); !slices.Equal(got, []string{"vip"}) {
		t.Errorf("activated %v, want the nominated pod", got)
	}
}
