package configurationresources

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A waiting pod is activated when its slot has neither holder nor claim any more, and when
// another node reaches the device; not by what does not help it.
func TestWaitingPodsAreActivatedByWhatHelps(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a")
	holder := pod("holder", "1")
	r.schedule(holder, "node-a")
	running := bound(holder, "node-a", r.given(holder))
	r.cache.SetPod(running)
	waiter := pod("waiter", "1")
	r.await(waiter)

	expect := func(what string, names ...string) {
		t.Helper()
		r.wantActivated(what, names...)
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
	r.cache.DeletePod(waiter)
	device(r.cache, "cam-000002", nil, "node-a")
	expect("the waiter gone")
}

// awaitAll has so many pods wait, each of its number as priority, and returns their names.
func (r *rig) awaitAll(pods int) []string {
	names := crowd(pods)
	for i, name := range names {
		r.await(withPriority(pod(name, "1"), int32(i)))
	}
	r.requeued()
	return names
}

// One event does not send all that wait through the scheduler. For a slot that was freed a first
// batch is tried, the most important pods; the others only if it stays free, or if they can
// preempt the pod that took it or that it is kept for. For one that is not free, those are tried
// that can preempt its holder, and no others.
func TestActivatesAsManyAsHelps(t *testing.T) {
	const waiting, first = 100, requeue.DefaultFirstBatch
	freed := func(r *rig) { device(r.cache, "cam-000001", nil, "node-a") }
	takenBy := func(priority int32) func(*rig) {
		return func(r *rig) { r.schedule(withPriority(pod("taker", "1"), priority), "node-a") }
	}
	const holder = 35 // its priority
	for name, test := range map[string]struct {
		before, event, afterFirst func(*rig)
		want                      int // the most important ones
	}{
		"left free":                         {event: freed, want: waiting},
		"taken by a pod no less important":  {event: freed, afterFirst: takenBy(waiting), want: first},
		"taken by one like those not tried": {event: freed, afterFirst: takenBy(waiting - first - 1), want: first},
		"taken by a less important pod":     {event: freed, afterFirst: takenBy(49), want: waiting - 50},
		"kept for a less important pod": {event: freed, afterFirst: func(r *rig) {
			r.cache.SetPod(nominatedTo(withPriority(pod("nominee", "1"), 49), "node-a"))
		}, want: waiting - 50},
		"held, and a node reaches the device": {
			before: func(r *rig) { r.hold("cam-000001", withPriority(pod("holder", "1"), holder), "node-b") },
			event:  func(r *rig) { device(r.cache, "cam-000001", nil, "node-a", "node-b") },
			want:   waiting - holder - 1},
		"held, and a stranger's claim goes": {
			before: func(r *rig) {
				r.hold("cam-000001", withPriority(pod("holder", "1"), holder), "node-b")
				device(r.cache, "cam-000001", map[string]string{"cam-000001-0": "C:stranger:node-b"}, "node-b")
			},
			event: func(r *rig) { device(r.cache, "cam-000001", nil, "node-b") },
			want:  waiting - holder - 1},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			if test.before != nil {
				test.before(r)
			}
			names := r.awaitAll(waiting)
			test.event(r)
			activated := r.requeuedWithin(0)
			if want := names[waiting-first:]; !slices.Equal(activated, want) {
				t.Fatalf("first activated: %v, want %v", activated, want)
			}
			if test.afterFirst != nil {
				test.afterFirst(r)
			}
			for _, name := range activated {
				r.cache.Queue.Try(types.UID(name + "-uid"))
				r.cache.Queue.Asked(types.UID(name + "-uid"))
			}
			activated = append(activated, r.requeuedInVain(time.Second)...)
			activated = slices.DeleteFunc(activated, func(name string) bool { return name == "nominee" })
			if got, want := slices.Compact(slices.Sorted(slices.Values(activated))), names[waiting-test.want:]; !slices.Equal(got, want) {
				t.Errorf("activated in all: %v, want %v", got, want)
			}
		})
	}
}

// Pods that were refused before the ledger had seen everything are tried once it has.
func TestTriedWhenTheLedgerIsInStep(t *testing.T) {
	r := newRig(t)
	started := slotcache.New(klog.FromContext(r.ctx), clock.RealClock{}, r) // but for its queue
	started.SetConfiguration(cameras(1))
	r.cache = started
	device(r.cache, "cam-000001", nil, "node-a")
	r.await(pod("waiter", "1"))
	r.cache.SetPod(pod("untried", "1"))
	r.wantActivated("being read")
	r.cache.Begin(r.ctx) // it has no sources to wait for
	r.wantActivated("in step", "waiter")
}

// Pods that come first wait for the ledger, rather than be refused one by one while
// it is being read.
func TestFirstPodsWaitForTheLedger(t *testing.T) {
	for name, inStep := range map[string]bool{"in step": true, "no CRDs": false} {
		synctestRun(t, name, func(t *testing.T) {
			var synced atomic.Bool
			r := newRig(t)
			r.cache = slotcache.New(klog.FromContext(r.ctx), clock.RealClock{}, r, synced.Load)
			r.cache.SetConfiguration(cameras(1))
			device(r.cache, "cam-000001", nil, "node-a")
			answer := make(chan *fwk.Status, 1)
			go func() {
				_, status := r.PreFilter(r.ctx, framework.NewCycleState(), pod("p", "1"), nil)
				answer <- status
			}()
			synctest.Wait()
			if len(answer) > 0 {
				t.Fatalf("answered before the ledger was read: %v", <-answer)
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
		r.refused(p, "node-a")
	}
	r.requeued()
	device(r.cache, "cam-000001", nil, "node-a")
	r.wantActivated("a device", "early")
}
