package configurationresources

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
)

// docs/races.md lists the races, and where each is tested.

// A pod is not bound with a slot that it has lost since Reserve, nor are slots claimed for it.
// What it gives back is free; what it has lost is not.
func TestSlotLostBeforeTheBind(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(*rig, *v1.Pod)
		why  string
		free int // in the end
	}{
		"the pod is deleted": {
			func(r *rig, p *v1.Pod) { r.cache.DeletePod(p) }, "its slots have been given back", 2},
		"another scheduler has bound a pod with it": {
			func(r *rig, _ *v1.Pod) { r.cache.SetPod(bound(pod("q", "1"), "node-b", cam1)) },
			"slot cam-000001-0 has been assigned to pod default/q by another scheduler", 1},
		"another has claimed it, by its Instance's name": {
			func(r *rig, _ *v1.Pod) { r.cache.SetClaim(claim("cam-000001-0", "node-b")) },
			"slot cam-000001-0 has been claimed by node node-b", 1},
		"the device is gone": {
			func(r *rig, _ *v1.Pod) { device(r.cache, "cam-000001", nil) },
			"slot cam-000001-0: Instance cam-000001 does not exist any more", 1},
		"its node's slice is deleted": {
			func(r *rig, _ *v1.Pod) { device(r.cache, "cam-000001", nil, "node-b") },
			"slot cam-000001-0: Instance cam-000001 cannot be reached from node node-a any more", 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newClaimRig(t)
			p := pod("p", "2")
			r.cache.SetPod(p)
			state := r.schedule(p, "node-a")
			test.lose(r.rig, p)
			wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Error, test.why)
			if len(r.bindings())+len(r.api.Actions()) != 0 {
				t.Errorf("for a pod that cannot be bound: bindings %v, claims %v", r.bindings(), r.api.Actions())
			}
			r.Unreserve(r.ctx, state, p, "node-a")
			r.wantFree("given back", "cam", test.free)
		})
	}
}

// A double allocation is decided by claims among other things: not before those are read.
func TestDoubleAllocationWaitsForTheClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced atomic.Bool
		r, holder := preemptionRig(t, synced.Load)
		late := bound(pod("late", "1"), "node-a", cam1)
		r.create(late)
		r.cache.SetPod(late)
		r.cache.Lead()
		time.Sleep(time.Hour)
		r.wantDeleted("before the claims are read")
		r.cache.SetClaim(claim("cam-000001-0", "C:late-uid:node-a"))
		synced.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantDeleted("the other pod has the claim", holder.Name)
	})
}

// A pod is deleted and made again under its name while the watch is interrupted:
// the informer shows it as one change.
func TestSameNameRecreated(t *testing.T) {
	r := cameraRig(t)
	pods := informer.Handler(r.cache.SetPod, r.cache.DeletePod, nil)
	former := bound(pod("p", "1"), "node-a", cam1)
	pods.OnAdd(former, false)
	again := pod("p", "1")
	again.UID = "p-again"
	pods.OnUpdate(former, again)
	if r.cache.Holds("p-uid") {
		t.Error("the former pod holds its slot for ever")
	}
	r.schedule(again, "node-b")
	// And one that waited: it must not be waited for any more.
	waits := pod("w", "1")
	pods.OnAdd(waits, false)
	pods.OnUpdate(waits, bound(pod("w", "1"), "node-a", nil))
	pods.OnDelete(cache.DeletedFinalStateUnknown{Obj: again})
	if n := r.waiting(); n != 0 {
		t.Errorf("%d pods that do not wait are remembered", n)
	}
}

// A bound pod holds its slot while its containers may run: also when it is edited, or being deleted.
// It holds it no more when it has ended or is gone.
func TestLivesOfABoundPod(t *testing.T) {
	more := v1.ResourceList{"akri.sh/cam": resource.MustParse("1"), v1.ResourceCPU: resource.MustParse("2")}
	tests := map[string]struct {
		change func(*v1.Pod)
		holds  bool
	}{
		"terminating pod":   {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
		"completed Job pod": {func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, false},
		"failed pod":        {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, false},
		"pod resize": {func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: more, Limits: more}
		}, true},
		"annotation edited":      {func(p *v1.Pod) { p.Annotations["KubeDevice/DeviceInfo"] = forged("cam-000001-7") }, true},
		"annotation malformed":   {func(p *v1.Pod) { p.Annotations["KubeDevice/DeviceInfo"] = "{" }, true},
		"annotations taken away": {func(p *v1.Pod) { p.Annotations = nil }, true},
		"node lost":              {func(p *v1.Pod) { p.Status.Phase = v1.PodUnknown }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := cameraRig(t)
			before := bound(pod("p", "1"), "node-a", cam1)
			before.Status.Phase = v1.PodRunning
			r.cache.SetPod(before)
			r.await(pod("waiter", "1"))
			r.requeued()
			after := before.DeepCopy()
			test.change(after)
			informer.Handler(r.cache.SetPod, r.cache.DeletePod, nil).OnUpdate(before, after)
			if r.cache.Holds("p-uid") != test.holds || r.mayTake("node-b") == test.holds {
				t.Errorf("holds its slot: %v, want %v; another may take it: %v", r.cache.Holds("p-uid"), test.holds, r.mayTake("node-b"))
			}
			if activated := r.requeued(); slices.Equal(activated, []string{"waiter"}) == test.holds {
				t.Errorf("activated %v", activated)
			}
			r.cache.DeletePod(after)
			if !r.mayTake("node-b") {
				t.Error("the pod is gone and its slot is not free")
			}
		})
	}
}
