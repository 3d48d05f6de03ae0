package configurationresources

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// docs/races.md lists the races, and where each is tested.

var cam1 = ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: "cam-1"}}}}

func instance(name string, uid string) *akriv0.Instance {
	return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-" + types.UID(uid)},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 1, Nodes: []string{"node-a", "node-b"}}}
}

// newScheduler has read the pods and the Instance cam-1, of one slot.
func newScheduler(t *testing.T, pods ...*v1.Pod) *rig {
	r := newRig(t)
	for _, p := range pods {
		r.book.setPod(p)
	}
	r.book.setInstance(instance("cam-1", ""))
	return r
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
			former, p, live := newScheduler(t), pod("p", "1"), pod("p", "1")
			former.applyBindings(live)
			if steps.filter {
				state, _ := former.filter(p, "node-a")
				if steps.reserve {
					former.Reserve(former.ctx, state, p, "node-a")
				}
				if steps.bind {
					former.Bind(former.ctx, state, p, "node-a")
				}
			}
			next := newScheduler(t, live)
			if next.book.holds("p-uid") != steps.bind || next.mayTake("node-b") == steps.bind {
				t.Errorf("p holds its slot: %v, another may take it: %v", next.book.holds("p-uid"), next.mayTake("node-b"))
			}
			if !steps.bind {
				next.schedule(t, p, "node-b")
			}
		})
	}
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
	second.book.setPod(live)
	if len(second.book.contested) != 0 {
		t.Error("a pod that is not bound contests a slot")
	}
	status := second.Bind(second.ctx, s2, q, "node-b")
	if status.IsSuccess() || len(second.client.Actions()) != 0 {
		t.Errorf("the second scheduler binds as well: %v", status)
	}
	second.Unreserve(second.ctx, s2, q, "node-b")
	if second.mayTake("node-b") || !second.book.holds("p-uid") {
		t.Error("the slot is given away a second time")
	}
}

// A contest is decided by claims among other things: not before those are read.
func TestContestWaitsForTheInstances(t *testing.T) {
	r, holder := preemptionRig(t)
	late := bound(t, pod("late", "1"), "node-a", cam1)
	if err := errors.Join(r.known.Add(late), r.client.Tracker().Add(late)); err != nil {
		t.Fatal(err)
	}
	r.book.leads, r.book.sources = false, []cache.InformerSynced{func() bool { return false }}
	r.book.setPod(late)
	r.filter(pod("any", "1"), "node-a")
	if r.book.leads {
		t.Fatal("leads before the Instances are read")
	}
	in := instance("cam-1", "")
	in.Spec.DeviceUsage = map[string]string{"cam-1-0": "C:late-uid:node-a"}
	r.book.setInstance(in)
	r.book.sources = nil
	r.filter(pod("any", "1"), "node-a")
	eventually(t, "the eviction of the pod without the claim", func() bool { return slices.Equal(r.deleted(), []string{holder.Name}) })
}

// Who would keep the slot is going itself, or is another pod by now: the other
// need not go. The API is asked, for this scheduler may have stood still.
func TestContestWithAKeeperThatGoes(t *testing.T) {
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
			if err := errors.Join(r.known.Add(late), r.client.Tracker().Add(late)); err != nil {
				t.Fatal(err)
			}
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
			r.evictLoser(&ledger.Contest{Keeper: podKey(holder), Losers: []ledger.Pod{podKey(late)}}, podKey(late))
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
	pods := handlerOf(r.book.setPod, r.book.deletePod)
	former := bound(t, pod("p", "1"), "node-a", cam1)
	pods.OnAdd(former, false)
	again := pod("p", "1")
	again.UID = "p-again"
	pods.OnUpdate(former, again)
	if r.book.holds("p-uid") {
		t.Error("the former pod holds its slot for ever")
	}
	r.schedule(t, again, "node-b")
	// And one that waited: it must not be waited for any more.
	waits := pod("w", "1")
	pods.OnAdd(waits, false)
	pods.OnUpdate(waits, bound(t, pod("w", "1"), "node-a", nil))
	pods.OnDelete(cache.DeletedFinalStateUnknown{Obj: again})
	if n := len(r.book.waiting); n != 0 {
		t.Errorf("%d resources are waited for by nobody", n)
	}

	instances := handlerOf(r.book.setInstance, r.book.deleteInstance)
	running := bound(t, pod("q", "1"), "node-a", cam1)
	pods.OnAdd(running, false)
	larger := instance("cam-1", "again")
	larger.Spec.Capacity = 2
	instances.OnUpdate(instance("cam-1", ""), larger)
	if got := r.book.ledger.Free("cam-1"); got != 1 || !r.book.holds("q-uid") {
		t.Errorf("%d slots are free of the new Instance, want 1 of 2; held by its pod: %v", got, r.book.holds("q-uid"))
	}
}

// The pod is deleted while it is being bound: whatever comes first, news of the
// deletion or the API's refusal, the slot is free once.
func TestPodDeletedDuringBind(t *testing.T) {
	for name, newsFirst := range map[string]bool{"news first": true, "refusal first": false} {
		t.Run(name, func(t *testing.T) {
			r, p := newScheduler(t), pod("p", "1")
			r.book.setPod(p)
			state := r.schedule(t, p, "node-a")
			if newsFirst {
				r.book.deletePod(p)
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
				r.book.deletePod(p)
				r.schedule(t, next, "node-b")
			}
			if !r.book.holds("next-uid") || r.book.holds("p-uid") || r.mayTake("node-a") {
				t.Error("the slot is not next's alone")
			}
			if len(r.book.tried)+len(r.book.assumed)+len(r.book.waiting) > 2 {
				t.Errorf("the deleted pod is remembered: %v %v %v", r.book.tried, r.book.assumed, r.book.waiting)
			}
		})
	}
}

// The device goes between Reserve and Bind, which may be long for a gang: the pod
// is not bound with it, and gets another.
func TestInstanceDeletedWhileReserved(t *testing.T) {
	r, p := newScheduler(t), pod("p", "1")
	r.applyBindings(p.DeepCopy())
	state := r.schedule(t, p, "node-a")
	r.book.deleteInstance(instance("cam-1", ""))
	if status := r.Bind(r.ctx, state, p, "node-a"); status.Code() != fwk.Error || len(r.bindings()) != 0 {
		t.Fatalf("bound with a device that is gone: %v", status)
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	r.book.setInstance(instance("cam-2", ""))
	state = r.schedule(t, p, "node-a")
	if status := r.Bind(r.ctx, state, p, "node-a"); !status.IsSuccess() {
		t.Error(status)
	}
}

// gang makes pods of one PodGroup.
func gang(group string, names ...string) []*v1.Pod {
	var pods []*v1.Pod
	for _, name := range names {
		p := pod(name, "1")
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
		pods = append(pods, p)
	}
	return pods
}

// A gang is reserved pod by pod and reverted as a whole, the last first, whether
// it fits or not; only then its pods are reserved again, to be bound (scheduler's
// schedule_one_podgroup.go). What is reverted helps nobody who was not refused
// meanwhile, least of all the gang.
func TestGangReverted(t *testing.T) {
	r := newScheduler(t)
	r.book.setInstance(instance("cam-2", ""))
	members := gang("g", "g1", "g2", "g3")
	other := pod("other", "1")
	for _, p := range append(slices.Clone(members), other) {
		r.book.setPod(p)
		if err := r.known.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	r.activated = nil
	for range 2 {
		s1, s2 := r.schedule(t, members[0], "node-a"), r.schedule(t, members[1], "node-b")
		if _, status := r.filter(members[2], "node-a"); status.Code() != fwk.Unschedulable {
			t.Fatalf("the third of two slots: %v", status)
		}
		r.Unreserve(r.ctx, s2, members[1], "node-b")
		r.Unreserve(r.ctx, s1, members[0], "node-a")
		if r.book.holds("g1-uid") || r.book.holds("g2-uid") || r.book.ledger.Free("cam") != 2 {
			t.Fatal("the reverted gang holds slots")
		}
	}
	if len(r.activated) != 0 {
		t.Errorf("woken by what the gang gave back: %v", r.activated)
	}
	// With one device more the whole gang fits: simulated, reverted, reserved, bound.
	r.book.setInstance(instance("cam-3", ""))
	r.activated = nil
	var states []fwk.CycleState
	for _, p := range members {
		states = append(states, r.schedule(t, p, "node-a"))
	}
	for i, p := range slices.Backward(members) {
		r.Unreserve(r.ctx, states[i], p, "node-a")
	}
	r.applyBindings(pod("any", "1"))
	for i, p := range members {
		if status := r.Reserve(r.ctx, states[i], p, "node-a"); !status.IsSuccess() {
			t.Fatalf("reserve %s again: %v", p.Name, status)
		}
	}
	// One of them fails in the end: now another pod, refused meanwhile, is helped.
	if _, status := r.filter(other, "node-a"); status.Code() != fwk.Unschedulable {
		t.Fatal(status)
	}
	r.Unreserve(r.ctx, states[2], members[2], "node-a")
	if !slices.Equal(r.activated, []string{"other"}) {
		t.Errorf("woken: %v, want other", r.activated)
	}
	if status := r.Bind(r.ctx, states[0], members[0], "node-a"); !status.IsSuccess() {
		t.Error(status)
	}
}

// Two pods that can never be bound give their slots back again and again. They
// would wake each other for ever, past the queue's backoff.
func TestFailedPodsDoNotWakeEachOther(t *testing.T) {
	r := newScheduler(t)
	r.book.setInstance(instance("cam-2", ""))
	pods := []*v1.Pod{pod("x", "1"), pod("y", "1")}
	for _, p := range pods {
		r.book.setPod(p)
		if err := r.known.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	r.activated = nil
	for range 3 {
		for _, p := range pods {
			r.Unreserve(r.ctx, r.schedule(t, p, "node-a"), p, "node-a")
		}
		sx, sy := r.schedule(t, pods[0], "node-a"), r.schedule(t, pods[1], "node-b")
		r.Unreserve(r.ctx, sx, pods[0], "node-a")
		r.Unreserve(r.ctx, sy, pods[1], "node-b")
	}
	if len(r.activated) != 0 {
		t.Errorf("woken: %v", r.activated)
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
		"annotation edited":      {func(p *v1.Pod) { p.Annotations["KubeDevice/DeviceInfo"] = forged("cam-1-7") }, true},
		"annotation malformed":   {func(p *v1.Pod) { p.Annotations["KubeDevice/DeviceInfo"] = "{" }, true},
		"annotations taken away": {func(p *v1.Pod) { p.Annotations = nil }, true},
		"node lost":              {func(p *v1.Pod) { p.Status.Phase = v1.PodUnknown }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newScheduler(t)
			before := bound(t, pod("p", "1"), "node-a", cam1)
			before.Status.Phase = v1.PodRunning
			r.book.setPod(before)
			waiter := pod("waiter", "1")
			r.book.setPod(waiter)
			r.activated = nil
			after := before.DeepCopy()
			test.change(after)
			handlerOf(r.book.setPod, r.book.deletePod).OnUpdate(before, after)
			if r.book.holds("p-uid") != test.holds || r.mayTake("node-b") == test.holds {
				t.Errorf("holds its slot: %v, want %v; another may take it: %v", r.book.holds("p-uid"), test.holds, r.mayTake("node-b"))
			}
			if woken := slices.Equal(r.activated, []string{"waiter"}); woken == test.holds {
				t.Errorf("activated %v", r.activated)
			}
			r.book.deletePod(after)
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
	r.book.setInstance(instance("cam-2", ""))
	r.book.setPod(bound(t, pod("holder", "1"), "node-a", cam1))
	gone := instance("cam-1", "")
	gone.Spec.Nodes = []string{"node-b"}
	r.book.setInstance(gone)
	r.book.setInstance(instance("cam-1", ""))

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
		if hint, err := afterAdvertisement(klog.Background(), p, old, known.Node()); hint != fwk.Queue || err != nil {
			t.Errorf("%s: hint %v, %v", what, hint, err)
		}
	}
	if status := r.Reserve(r.ctx, state, p, "node-a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if got := r.book.ledger.Holds("p-uid"); len(got) != 1 || got[0].Instance != "cam-2" {
		t.Errorf("got %v, want a slot of cam-2: the other is the holder's", got)
	}
}

// An agent that works as a device plugin claims the slot by its Instance's name
// between Reserve and Bind.
func TestInstanceLevelClaimRacesAConfigurationLevelOne(t *testing.T) {
	r, p := newScheduler(t), pod("p", "1")
	state := r.schedule(t, p, "node-a")
	claimed := instance("cam-1", "")
	claimed.Spec.DeviceUsage = map[string]string{"cam-1-0": "node-b"}
	r.book.setInstance(claimed)
	if status := r.Bind(r.ctx, state, p, "node-a"); status.IsSuccess() || len(r.bindings()) != 0 {
		t.Fatalf("bound with a slot that another has claimed: %v", status)
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if r.mayTake("node-a") {
		t.Error("the claimed slot is free")
	}
	r.book.setInstance(instance("cam-1", ""))
	r.schedule(t, p, "node-a")
}

// Two pods are nominated on one node, with no assignment yet. Each is tried with
// the other imagined there: neither may be given what is kept for the other, or
// both would wait until the nominations end.
func TestNominatedPodsDoNotBlockEachOther(t *testing.T) {
	for name, slots := range map[string]int{"slots for both": 4, "slots for one": 2} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			names := []string{"cam-1", "cam-2"}
			for _, name := range names {
				in := instance(name, "")
				in.Spec.Capacity = int32(slots / len(names))
				r.book.setInstance(in)
			}
			pods := []*v1.Pod{pod("p", "2"), pod("q", "2")}
			for _, p := range pods {
				p.Status.NominatedNodeName = "node-a"
				r.book.setPod(p)
			}
			bound := 0
			for i, p := range pods {
				state, status := r.filter(p, "node-a")
				imagined := state.Clone()
				if other := pods[1-i]; status.IsSuccess() && !r.book.holds(string(other.UID)) {
					info, err := framework.NewPodInfo(other)
					if err != nil {
						t.Fatal(err)
					}
					r.AddPod(r.ctx, imagined, p, info, nil)
					status = r.Filter(r.ctx, imagined, p, nodeInfo("node-a"))
				}
				if !status.IsSuccess() {
					continue
				}
				if status := r.Reserve(r.ctx, state, p, "node-a"); !status.IsSuccess() {
					t.Fatal(status)
				}
				bound++
			}
			if bound != slots/2 {
				t.Errorf("%d of 2 pods that need 2 of %d slots each can be bound", bound, slots)
			}
		})
	}
}

// A reserved pod whose bind may take long, as a gang's, is nominated by the
// framework. It has its slot; no second one is kept for it.
func TestReservedPodIsNominated(t *testing.T) {
	r := newScheduler(t)
	r.book.setInstance(instance("cam-2", ""))
	p := pod("p", "1")
	r.book.setPod(p)
	state := r.schedule(t, p, "node-a")
	shown := p.DeepCopy()
	shown.Status.NominatedNodeName = "node-a"
	r.book.setPod(shown)
	if !r.mayTake("node-b") {
		t.Error("the other slot is kept for a pod that has one")
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if got := r.book.ledger.Free("cam"); got != 2 {
		t.Errorf("%d slots are free of 2", got)
	}
}

// A pod that slots are kept for takes others, which are free as well: the kept ones
// are for whoever comes.
func TestNominatedPodTakesOtherSlots(t *testing.T) {
	r := newScheduler(t)
	p := pod("p", "1")
	p.Status.NominatedNodeName = "node-a"
	r.book.setPod(p)
	if r.mayTake("node-b") {
		t.Fatal("the slot is not kept")
	}
	larger := instance("cam-0", "")
	larger.Spec.Capacity = 2
	r.book.setInstance(larger)
	r.schedule(t, p, "node-a")
	if got := r.book.ledger.Holds("p-uid"); len(got) != 1 || got[0].Instance != "cam-0" {
		t.Fatalf("took %v, want of the Instance with the most free", got)
	}
	if got := r.book.ledger.Free("cam-1"); got != 1 {
		t.Error("the slot that it did not take is still kept for it")
	}
}
