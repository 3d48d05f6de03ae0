package configurationresources

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func TestWaitingPodsAreActivatedByWhatHelps(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a")
	holder := pod("holder", "1")
	r.schedule(t, holder, "node-a")
	running := bound(t, holder, "node-a", r.given(holder))
	r.cache.SetPod(running)
	waiter := pod("waiter", "1")
	r.cache.SetPod(waiter)

	expect := func(what string, names ...string) {
		t.Helper()
		if got := r.requeued(); !slices.Equal(got, names) {
			t.Errorf("%s: activated %v, want %v", what, got, names)
		}
		r.cache.Queue.Try(waiter.UID)
	}
	r.requeued()
	device(r.cache, "cam-000001", map[string]string{"cam-000001-0": "C:holder-uid:node-a"}, "node-a")
	expect("the holder's claim")
	r.cache.SetPod(waiter)
	expect("nothing new about the waiter")
	r.cache.DeletePod(running)
	expect("the holder gone, its claim not")
	device(r.cache, "cam-000001", nil, "node-a")
	expect("the claim gone", "waiter")
	device(r.cache, "cam-000001", nil, "node-a", "node-b")
	expect("another node reaches the device", "waiter")
	r.cache.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}})
	expect("another Configuration")
	plain := running.DeepCopy()
	plain.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	gone := func(what string, deleted *v1.Pod, want fwk.QueueingHint) {
		t.Helper()
		if got, err := r.afterDeletion(klog.Background(), waiter, deleted, nil); got != want || err != nil {
			t.Errorf("%s deleted: hint %v, %v; want %v", what, got, err, want)
		}
	}
	gone("a pod with the same request, whose slots the waiter waits for,", running, fwk.QueueSkip)
	r.met(waiter, waitreason.NotAdvertised)
	gone("a pod with the same request, on a node that does not advertise enough,", running, fwk.Queue)
	gone("a plain pod", plain, fwk.QueueSkip)
	r.cache.DeletePod(waiter)
	device(r.cache, "cam-000002", nil, "node-a")
	expect("the waiter gone")
}

// met begins a try of a waiting pod that meets the reason.
func (r *rig) met(p *v1.Pod, reason waitreason.Reason) {
	w, _ := r.cache.Queue.Get(p.UID)
	w.Try(time.Now())
	w.Meet(reason)
}

// awaitAll has so many pods wait, each of its number as priority, and returns their names.
func (r *rig) awaitAll(pods int) []string {
	names := crowd(pods)
	for i, name := range names {
		r.cache.SetPod(withPriority(pod(name, "1"), int32(i)))
	}
	r.requeued()
	return names
}

func withPriority(p *v1.Pod, priority int32) *v1.Pod {
	p.Spec.Priority = &priority
	return p
}

// One freed slot does not send all waiting pods through the scheduler: those of
// the highest priority are tried first, and the others only if it stays free, or if they
// can preempt the pod that took it.
func TestActivatesAsManyAsHelps(t *testing.T) {
	const waiting = 100
	for name, test := range map[string]struct {
		taken    bool
		priority int32 // of the taker
		want     int
	}{
		"left free":                         {want: waiting},
		"taken by a pod no less important":  {true, waiting, requeue.DefaultFirstBatch},
		"taken by one like those not tried": {true, waiting - requeue.DefaultFirstBatch - 1, requeue.DefaultFirstBatch},
		"taken by a less important pod":     {true, 49, waiting - 50},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			r.awaitAll(waiting)
			device(r.cache, "cam-000001", nil, "node-a")
			const first = requeue.DefaultFirstBatch
			activated := r.requeuedWithin(0)
			if len(activated) != first || !slices.Contains(activated, "p099") || slices.Contains(activated, "p000") {
				t.Fatalf("first activated: %v", activated)
			}
			if test.taken {
				r.schedule(t, withPriority(pod("taker", "1"), test.priority), "node-a")
			}
			activated = append(activated, r.requeuedWithin(time.Second)...)
			if got := slices.Compact(slices.Sorted(slices.Values(activated))); len(got) != test.want {
				t.Errorf("activated in all: %d, want %d", len(got), test.want)
			}
		})
	}
}

// What the ledger sees at start activates nobody: all that wait are tried once it has
// seen everything.
func TestNoWakingBeforeTheLedgerIsInStep(t *testing.T) {
	r := newRig(t)
	started := slotcache.New(klog.FromContext(r.ctx), clock.RealClock{}, r) // but for its queue
	started.SetConfiguration(cameras(1))
	r.cache = started
	r.cache.SetPod(pod("waiter", "1"))
	device(r.cache, "cam-000001", nil, "node-a")
	if got := r.requeued(); len(got) > 0 {
		t.Errorf("activated %v", got)
	}
	r.cache.Begin(r.ctx) // it has no sources to wait for
	if got := r.requeued(); !slices.Equal(got, []string{"waiter"}) {
		t.Errorf("in step: activated %v, want the waiter", got)
	}
}

// Pods that come first wait for the ledger, rather than be refused one by one while
// it is being read.
func TestFirstPodsWaitForTheLedger(t *testing.T) {
	for name, inStep := range map[string]bool{"in step": true, "no CRDs": false} {
		t.Run(name, func(t *testing.T) {
			var synced atomic.Bool
			r := newRig(t)
			r.cache = slotcache.New(klog.FromContext(r.ctx), clock.RealClock{}, r, synced.Load)
			r.cache.SetConfiguration(cameras(1))
			device(r.cache, "cam-000001", nil, "node-a")
			answer := make(chan *fwk.Status)
			go func() {
				_, status := r.PreFilter(r.ctx, framework.NewCycleState(), pod("p", "1"), nil)
				answer <- status
			}()
			select {
			case status := <-answer:
				t.Fatalf("answered before the ledger was read: %v", status)
			default:
			}
			synced.Store(inStep)
			r.cache.GiveUpWaiting()
			if status := <-answer; status.IsSuccess() != inStep {
				t.Errorf("PreFilter: %v", status)
			}
		})
	}
}

// A pod that the scheduler tries before the slot cache's handler has seen it is activated
// all the same; one that is deleted by then is not remembered.
func TestTriedBeforeSeen(t *testing.T) {
	r := newRig(t)
	early, late := pod("early", "1"), pod("late", "1")
	r.know(early)
	for _, p := range []*v1.Pod{early, late} {
		r.refused(t, p, "node-a")
	}
	r.requeued()
	device(r.cache, "cam-000001", nil, "node-a")
	if got := r.requeued(); !slices.Equal(got, []string{"early"}) {
		t.Errorf("activated %v, want early", got)
	}
}

// A node's new device is in a DeviceSlice before its kubelet knows: a pod bound in
// between would fail its admission.
func TestWaitsForTheKubeletToKnow(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a")
	node := func(advertised string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
		if advertised != "" {
			n.Status.Allocatable = v1.ResourceList{"akri.sh/cam": resource.MustParse(advertised)}
		}
		return n
	}
	holder, err := framework.NewPodInfo(pod("holder", "1"))
	if err != nil {
		t.Fatal(err)
	}
	p := pod("p", "1")
	r.know(p)
	for advertised, fits := range map[string]bool{"": false, "1": false, "2": true} {
		info := framework.NewNodeInfo(holder.Pod)
		info.SetNode(node(advertised))
		state, status := r.filter(p, "node-a")
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		if status := r.Filter(r.ctx, state, p, info); status.IsSuccess() != fits {
			t.Errorf("with %q advertised and one in use: %v, want fits %v", advertised, status, fits)
		}
		if refused := r.refusedByNode(p); refused == fits {
			t.Errorf("with %q advertised and one in use: remembered as refused: %v", advertised, refused)
		}
	}
	two := pod("two", "2")
	for _, test := range []struct {
		pod           *v1.Pod
		refused       bool
		before, after *v1.Node
		want          fwk.QueueingHint
	}{
		{p, true, node("1"), node("2"), fwk.Queue},
		{p, true, node("1"), node(""), fwk.QueueSkip},
		{p, true, node("2"), node("1"), fwk.QueueSkip},
		{p, true, node("1"), node("1"), fwk.QueueSkip},
		{two, true, node(""), node("1"), fwk.QueueSkip},
		{two, true, node("1"), node("2"), fwk.Queue},
		// It waits for slots: the ledger activates it, but for a node that it was never tried on.
		{p, false, node("1"), node("2"), fwk.QueueSkip},
		{p, false, node(""), node("1"), fwk.Queue},
		{p, false, nil, node("2"), fwk.Queue},
		{p, false, nil, node(""), fwk.QueueSkip},
		{two, false, nil, node("1"), fwk.QueueSkip},
	} {
		var old any
		if test.before != nil {
			old = test.before
		}
		r.cache.SetPod(test.pod)
		r.met(test.pod, map[bool]waitreason.Reason{true: waitreason.NotAdvertised, false: waitreason.Held}[test.refused])
		if got, err := r.afterAdvertisement(klog.Background(), test.pod, old, test.after); got != test.want || err != nil {
			t.Errorf("pod %s, refused %v, %v -> %v: hint %v, %v", test.pod.Name, test.refused, test.before, test.after.Status.Allocatable, got, err)
		}
	}
	r.met(p, waitreason.NotAdvertised)
	r.cache.DeletePod(p)
	if r.refusedByNode(p) {
		t.Error("a pod that is gone is remembered as refused")
	}
}
