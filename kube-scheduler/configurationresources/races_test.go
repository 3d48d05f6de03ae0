package configurationresources

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/slot"
)

// docs/races.md lists the races, and where each is tested.

var cam1 = ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: "cam-000001"}}}}

// newScheduler has read the pods and then of the camera cam-000001, of one slot.
func newScheduler(t *testing.T, pods ...*v1.Pod) *rig {
	r := newRig(t)
	for _, p := range pods {
		r.cache.SetPod(p)
	}
	shared(r.cache, "cam-000001")
	r.cache.Begin(r.ctx)
	return r
}

// waiting is how many pods the queue has.
func (r *rig) waiting() (n int) {
	r.cache.Queue.Each(func(*v1.Pod, *waitreason.Record, []string) { n++ })
	return n
}

// mayTake reports whether a further pod would get the slot.
func (r *rig) mayTake(node string) bool {
	_, status := r.filter(pod("further", "1"), node)
	return status.IsSuccess()
}

// applyBindings makes the client carry out bindings on the pod.
func (r *rig) applyBindings(live *v1.Pod) {
	r.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		b := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		live.Spec.NodeName, live.Annotations = b.Target.Name, b.Annotations
		return true, nil, nil
	})
}

// Two schedulers choose one slot. The one that hears of the other's bind before
// its own does not bind.
func TestTwoSchedulers(t *testing.T) {
	first, second := newScheduler(t), newScheduler(t)
	p, q := pod("p", "1"), pod("q", "1")
	s1, s2 := first.schedule(t, p, "node-a"), second.schedule(t, q, "node-b")
	live := p.DeepCopy()
	first.applyBindings(live)
	if status := first.Bind(first.ctx, s1, p, "node-a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	second.cache.SetPod(live)
	status := second.Bind(second.ctx, s2, q, "node-b")
	if status.IsSuccess() || len(second.client.Actions()) != 0 {
		t.Errorf("the second scheduler binds as well: %v", status)
	}
	second.Unreserve(second.ctx, s2, q, "node-b")
	if second.mayTake("node-b") || !second.cache.Holds("p-uid") {
		t.Error("the slot is given away a second time")
	}
}

// A double allocation is decided by claims among other things: not before those are read.
func TestDoubleAllocationWaitsForTheClaims(t *testing.T) {
	var synced atomic.Bool
	r, holder := preemptionRig(t, synced.Load)
	late := bound(t, pod("late", "1"), "node-a", cam1)
	r.create(late)
	r.cache.SetPod(late)
	r.cache.Lead()
	if len(r.deleted()) > 0 {
		t.Fatalf("%v are evicted before the claims are read", r.deleted())
	}
	r.cache.SetClaim(claim("cam-000001-0", "C:late-uid:node-a"), false)
	synced.Store(true)
	r.cache.Begin(r.ctx)
	eventually(t, "the eviction of the pod without the claim", func() bool { return slices.Equal(r.deleted(), []string{holder.Name}) })
}

// Who would keep the slot is going itself, or is another pod by now: the other
// need not go. The API is asked, for this scheduler may have stood still.
func TestDoubleAllocationWhoseWinnerGoes(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"terminating":        func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"completed":          func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
		"re-created":         func(p *v1.Pod) { p.UID = "another" },
		"gone":               nil,
		"there (it is kept)": func(*v1.Pod) {},
	} {
		t.Run(name, func(t *testing.T) {
			r, holder := preemptionRig(t)
			late := bound(t, pod("late", "1"), "node-a", cam1)
			r.create(late)
			pods := v1.SchemeGroupVersion.WithResource("pods")
			if change == nil {
				if err := r.client.Tracker().Delete(pods, holder.Namespace, holder.Name); err != nil {
					t.Fatal(err)
				}
			} else {
				live := holder.DeepCopy()
				change(live)
				if err := r.client.Tracker().Update(pods, live, live.Namespace); err != nil {
					t.Fatal(err)
				}
			}
			r.evictor().Evict(r.ctx, []*ledger.DoubleAllocation{&ledger.DoubleAllocation{Winner: slotrequest.PodOf(holder), Losers: []ledger.Pod{slotrequest.PodOf(late)}}})
			if got, kept := r.deleted(), strings.HasPrefix(name, "there"); (len(got) == 1) != kept {
				t.Errorf("evicted %v", got)
			}
		})
	}
}

// A pod is deleted and made again under its name while the watch is interrupted:
// the informer shows it as one change.
func TestSameNameRecreated(t *testing.T) {
	r := newScheduler(t)
	pods := informer.Handler(r.cache.SetPod, r.cache.DeletePod, nil)
	former := bound(t, pod("p", "1"), "node-a", cam1)
	pods.OnAdd(former, false)
	again := pod("p", "1")
	again.UID = "p-again"
	pods.OnUpdate(former, again)
	if r.cache.Holds("p-uid") {
		t.Error("the former pod holds its slot for ever")
	}
	r.schedule(t, again, "node-b")
	// And one that waited: it must not be waited for any more.
	waits := pod("w", "1")
	pods.OnAdd(waits, false)
	pods.OnUpdate(waits, bound(t, pod("w", "1"), "node-a", nil))
	pods.OnDelete(cache.DeletedFinalStateUnknown{Obj: again})
	if n := r.waiting(); n != 0 {
		t.Errorf("%d pods that do not wait are remembered", n)
	}

	running := bound(t, pod("q", "1"), "node-a", cam1)
	pods.OnAdd(running, false)
	device(r.cache, "cam-000001", nil) // and found again, when it can be shared by more
	r.cache.SetConfiguration(cameras(2))
	shared(r.cache, "cam-000001")
	if got := ledgerOf(r.cache).Free("cam-000001"); got != 1 || !r.cache.Holds("q-uid") {
		t.Errorf("%d slots are free of the device that came back, want 1 of 2; held by its pod: %v", got, r.cache.Holds("q-uid"))
	}
}

// The pod is deleted while it is being bound: whatever comes first, news of the
// deletion or the API's refusal, the slot is free once.
func TestPodDeletedDuringBind(t *testing.T) {
	for name, newsFirst := range map[string]bool{"news first": true, "refusal first": false} {
		t.Run(name, func(t *testing.T) {
			r, p := newScheduler(t), pod("p", "1")
			r.cache.SetPod(p)
			state := r.schedule(t, p, "node-a")
			if newsFirst {
				r.cache.DeletePod(p)
			}
			r.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(v1.Resource("pods"), "p")
			})
			if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() {
				t.Error("bound after it was deleted")
			}
			next := pod("next", "1")
			if newsFirst {
				r.schedule(t, next, "node-b")
			}
			r.Unreserve(r.ctx, state, p, "node-a")
			if !newsFirst {
				r.cache.DeletePod(p)
				r.schedule(t, next, "node-b")
			}
			if !r.cache.Holds("next-uid") || r.cache.Holds("p-uid") || r.mayTake("node-a") {
				t.Error("the slot is not next's alone")
			}
			if n := r.waiting(); n > 1 {
				t.Errorf("the deleted pod is remembered: %d wait", n)
			}
		})
	}
}

// What happens to a bound pod in its life, and whether it still holds its slot.
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
			r := newScheduler(t)
			before := bound(t, pod("p", "1"), "node-a", cam1)
			before.Status.Phase = v1.PodRunning
			r.cache.SetPod(before)
			waiter := pod("waiter", "1")
			r.cache.SetPod(waiter)
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

// A node is deleted and comes back: without allocatable at first, which its
// kubelet and kubecri write anew. The ledger does not lose what its pods hold.
func TestNodeDeletedAndReAdded(t *testing.T) {
	r := newScheduler(t)
	shared(r.cache, "cam-000002")
	r.cache.SetPod(bound(t, pod("holder", "1"), "node-a", cam1))
	// The garbage collector deletes its slices.
	for _, camera := range []string{"cam-000001", "cam-000002"} {
		device(r.cache, camera, nil, "node-b")
	}
	r.cache.DeleteNode(withNode("node-a"))
	r.cache.SetNode(withNode("node-a"))
	shared(r.cache, "cam-000001", "cam-000002")

	p := pod("p", "1")
	state, status := r.filter(p, "node-a")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	bare, known := nodeInfo("node-a"), nodeInfo("node-a")
	bare.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})
	if status := r.Filter(r.ctx, state, p, bare); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("before the node advertises: %v", status)
	}
	for what, old := range map[string]any{"re-added": nil, "advertises again": bare.Node()} {
		if hint, err := r.afterAdvertisement(klog.Background(), p, old, known.Node()); hint != fwk.Queue || err != nil {
			t.Errorf("%s: hint %v, %v", what, hint, err)
		}
	}
	if status := r.Reserve(r.ctx, state, p, "node-a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if got := ledgerOf(r.cache).Holds("p-uid"); len(got) != 1 || got[0].Instance != "cam-000002" {
		t.Errorf("got %v, want a slot of cam-000002: the other is the holder's", got)
	}
}

// An agent that works as a device plugin claims the slot by its Instance's name
// between Reserve and Bind.
func TestInstanceLevelClaimRacesAConfigurationLevelOne(t *testing.T) {
	r, p := newScheduler(t), pod("p", "1")
	state := r.schedule(t, p, "node-a")
	r.cache.SetClaim(claim("cam-000001-0", "node-b"), false)
	if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() || len(r.bindings()) != 0 {
		t.Fatalf("bound with a slot that another has claimed: %v", status)
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if r.mayTake("node-a") {
		t.Error("the claimed slot is free")
	}
	r.cache.DeleteClaim(claim("cam-000001-0", "node-b"))
	r.schedule(t, p, "node-a")
}
