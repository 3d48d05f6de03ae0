package configurationresources

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/slot"
)

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

// podGroup is a group of which all or none are bound.
func podGroup(name string, pods int, priority int32) *schedulingv1beta1.PodGroup {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid")}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(pods)}
	group.Spec.Priority = &priority
	return group
}

// A gang of three with two slots: upstream's scheduler, gangs on, reserves two,
// is refused the third and reverts. Nothing is bound or held, until there is a
// third slot; then all are bound.
func TestGangInTheRealScheduler(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate,
		featuregatetesting.FeatureOverrides{features.GenericWorkload: true})
	members := gang("g", "g1", "g2", "g3")
	objects := []runtime.Object{podGroup("g", 3, 0), advertising("node-a", "100"), advertising("node-b", "100")}
	for _, p := range members {
		objects = append(objects, p)
	}
	q := newRealScheduler(t, nil, objects...)
	shared(q.cache, "cam-000001", "cam-000002")

	refusals := func() (n int) {
		for _, a := range q.client.Actions() {
			if a.Matches("patch", "pods/status") {
				n++
			}
		}
		return n
	}
	q.eventually("the gang to be refused", func() bool { return refusals() >= len(members) })
	state := func() string {
		out := ""
		q.cache.Read(func(l *ledger.Ledger) {
			out = fmt.Sprint("free ", l.Free("cam"))
			for _, p := range members {
				out += fmt.Sprint(" ", l.Holds(string(p.UID)))
			}
		})
		return out
	}
	q.eventually("the gang to hold nothing", func() bool { return state() == "free 2 [] [] []" })
	if n := len(q.bindings()); n != 0 {
		t.Fatalf("%d of a gang that does not fit are bound", n)
	}

	shared(q.cache, "cam-000003")
	q.eventually("the gang to be bound", func() bool { return len(q.bindings()) == len(members) })
	slots := map[string]bool{}
	for _, p := range members {
		q.cache.Read(func(l *ledger.Ledger) {
			for _, s := range l.Holds(string(p.UID)) {
				slots[s.String()] = true
			}
		})
	}
	if len(slots) != len(members) {
		t.Errorf("the gang has the slots %v", slots)
	}
}

// groupCycle is the state of a pod's cycle while upstream looks for nodes for all of a group, whose
// own state the pods share.
func groupCycle(group *framework.CycleState) *framework.CycleState {
	state, placement := framework.NewCycleState(), framework.NewCycleState()
	placement.SetPodGroupSchedulingCycle(group)
	state.SetPodGroupSchedulingCycle(group)
	state.SetPlacementCycleState(placement)
	return state
}

// below is the state of a group in a composite one.
func below(composite *framework.CycleState) *framework.CycleState {
	group, placement := framework.NewCycleState(), framework.NewCycleState()
	placement.SetPodGroupSchedulingCycle(composite)
	group.SetPlacementCycleState(placement)
	return group
}

// place finds the pod a place on the node as a part of its group.
func (r *rig) place(state *framework.CycleState, p *v1.Pod, node string, away ...*v1.Pod) *fwk.Status {
	r.Helper()
	on, ctx := nodeInfo(node), r.ctx
	if len(away) > 0 {
		ctx = context.WithValue(ctx, imaginedAway{}, away)
	}
	if _, status := r.PreFilter(ctx, state, p, []fwk.NodeInfo{on}); !status.IsSuccess() {
		return status
	}
	if status := r.Filter(r.ctx, state, p, on); !status.IsSuccess() {
		return status
	}
	return r.Reserve(r.ctx, state, p, node)
}

// A gang is reserved pod by pod and reverted as a whole, the last first, whether it fits or not;
// only then its pods are reserved again, to be bound (scheduler's schedule_one_podgroup.go;
// TestGangInTheRealScheduler). Until then the ledger knows nothing of it: reverting
// activates no pod and ends no nomination.
func TestGangReverted(t *testing.T) {
	r, _ := preemptionRig(t)
	vip := important("vip")
	r.cache.SetPod(vip)
	r.preempts(vip)
	shared(r.cache, "cam-000002", "cam-000003")
	members := gang("g", "g1", "g2", "g3")
	other := pod("other", "1")
	for _, p := range append(slices.Clone(members), other) {
		withPriority(p, 200)
		r.cache.SetPod(p)
		r.know(p)
	}
	r.requeued()
	for range 2 {
		group := framework.NewCycleState()
		var placed []*framework.CycleState
		for i, node := range []string{"node-a", "node-b"} {
			placed = append(placed, groupCycle(group))
			if status := r.place(placed[i], members[i], node); !status.IsSuccess() {
				t.Fatal(status)
			}
		}
		if status := r.place(groupCycle(group), members[2], "node-a"); status.IsSuccess() {
			t.Fatal("three of a gang have two slots")
		}
		r.wantFree("while the gang is placed", "cam", 2)
		r.Unreserve(r.ctx, placed[1], members[1], "node-b")
		r.Unreserve(r.ctx, placed[0], members[0], "node-a")
		r.wantFree("reverted", "cam", 2)
		r.wantKept("beside a gang that fails", "node-a")
	}
	r.wantActivated("by what the gang gave back")
	// It fits without the third: its pods are reserved for good, by the same states.
	group := framework.NewCycleState()
	first := groupCycle(group)
	if status := r.place(first, members[0], "node-a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	r.Unreserve(r.ctx, first, members[0], "node-a")
	first.SetPodGroupSchedulingCycle(nil)
	if status := r.Reserve(r.ctx, first, members[0], "node-a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	r.wantFree("reserved", "cam", 1)
	r.refused(withPriority(pod("many", "2"), 200), "node-a")
	r.Unreserve(r.ctx, first, members[0], "node-a")
	r.wantFree("given back", "cam", 2)
}

// All groups of a composite one are placed together: what one of them is to get the next one does not.
func TestCompositeGang(t *testing.T) {
	r := newRig(t)
	shared(r.cache, "cam-000001", "cam-000002", "cam-000003")
	composite := framework.NewCycleState()
	groups := []*framework.CycleState{below(composite), below(below(composite))}
	for i, want := range []fwk.Code{fwk.Success, fwk.Success, fwk.Success, fwk.Unschedulable} {
		name := fmt.Sprint("g", i)
		wantStatus(t, name, r.place(groupCycle(groups[i/2]), gang("g", name)[0], "node-a"), want)
	}
}

// The pods of a composite group are reserved in any order, and get the slots that they were placed with: one that takes
// any device leaves another the one that it names.
func TestCompositeGangIsReservedInAnyOrder(t *testing.T) {
	r := newRig(t)
	shared(r.cache, "cam-000001", "cam-000002")
	composite := framework.NewCycleState()
	members := []*v1.Pod{asks("names-one", "cam-000001", "1"), pod("takes-any", "1")}
	var states []*framework.CycleState
	for i, p := range members {
		states = append(states, groupCycle(below(composite)))
		wantStatus(t, p.Name+" is placed", r.place(states[i], p, "node-a"), fwk.Success)
	}
	for i, p := range slices.Backward(members) {
		r.Unreserve(r.ctx, states[i], p, "node-a")
	}
	for i, p := range slices.Backward(members) {
		states[i].SetPodGroupSchedulingCycle(nil)
		wantStatus(t, p.Name, r.Reserve(r.ctx, states[i], p, "node-a"), fwk.Success)
	}
}

// Upstream asks where a gang would fit with others gone. That is no try: what the gang has met stays.
func TestGangThatCannotPreemptSaysWhatItMet(t *testing.T) {
	r, holder := preemptionRig(t)
	p := withPriority(gang("g", "p")[0], 100)
	r.cache.SetPod(p)
	r.know(p)
	group := framework.NewCycleState()
	wantStatus(t, "placed", r.place(groupCycle(group), p, "node-a"), fwk.Unschedulable)
	wantStatus(t, "with the holder gone", r.place(groupCycle(group), p, "node-a", holder), fwk.Success)
	if record, _ := r.cache.Queue.Get(p.UID); record.Reason() != waitreason.Held {
		t.Errorf("the pod waits for reason %v, want %v", waitreason.Names[record.Reason()],
			waitreason.Names[waitreason.Held])
	}
}

// Slots are kept for one of a gang: it takes no others besides.
func TestGangWithANominee(t *testing.T) {
	r := newRig(t)
	shared(r.cache, "cam-000002")
	members := gang("g", "g1", "g2")
	r.cache.SetPod(nominatedTo(members[0], "node-a"))
	shared(r.cache, "cam-000001")
	group := framework.NewCycleState()
	for _, p := range members {
		wantStatus(t, p.Name, r.place(groupCycle(group), p, "node-a"), fwk.Success)
	}
}

// While what is kept for a gang is not free, nobody else is preempted for it. If it is refused when that is free, as on
// a node that was cordoned meanwhile, it may preempt anew.
func TestGangThatHasWhatItWasNominatedFor(t *testing.T) {
	r, holder := preemptionRig(t)
	members := gang("g", "g1")
	r.cache.SetPod(nominatedTo(withPriority(members[0], 100), "node-b"))
	r.cache.SetPod(ending(holder))
	if nodes := r.nominatedNodes(members); len(nodes) != 1 {
		t.Errorf("while the victim ends: %v", nodes)
	}
	r.cache.DeletePod(holder)
	if nodes := r.nominatedNodes(members); nodes != nil {
		t.Errorf("when it is gone: %v", nodes)
	}
}

// Upstream asks anew where a gang fits for each pod that the gang might preempt. What one such question costs
// depends on the gang, and not on how many those pods are.
func TestGangThatMightPreemptMany(t *testing.T) {
	allocated := func(holders int) float64 {
		r := newRig(t)
		var away []*v1.Pod
		for i := range holders {
			away = append(away, r.hold(camera(i), pod(fmt.Sprint("holder-", i), "1"), "node-a", "node-b"))
		}
		group, members := framework.NewCycleState(), gang("g", "g1", "g2")
		states := []*framework.CycleState{groupCycle(group), groupCycle(group)}
		for i, p := range members {
			wantStatus(t, p.Name, r.place(states[i], withPriority(p, 100), "node-a", away...), fwk.Success)
		}
		back, on := must(framework.NewPodInfo(away[0])), nodeInfo("node-a")
		return testing.AllocsPerRun(10, func() {
			for i, p := range members {
				r.Unreserve(r.ctx, states[i], p, "node-a")
				wantStatus(t, "put back", r.AddPod(r.ctx, states[i], p, back, on), fwk.Success)
			}
			for i, p := range members {
				wantStatus(t, "Filter", r.Filter(r.ctx, states[i], p, on), fwk.Success)
				wantStatus(t, "Reserve", r.Reserve(r.ctx, states[i], p, "node-a"), fwk.Success)
				wantStatus(t, "removed", r.RemovePod(r.ctx, states[i], p, back, on), fwk.Success)
			}
		})
	}
	few, many := allocated(10), allocated(1000)
	if many > 3*few {
		t.Errorf("%.0f allocations with 1000 pods that might be preempted, and %.0f with 10", many, few)
	}
}

// What a node advertises is counted anew for the second of a gang: upstream has put the first on it.
func TestGangCountsWhatNodesAdvertise(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{features.GenericWorkload: true})
	group, members := podGroup("g", 2, 0), gang("g", "g1", "g2")
	q := newRealScheduler(t, nil, group, advertising("node-a", "1"), advertising("node-b", "1"), members[0], members[1])
	shared(q.cache, "cam-000001", "cam-000002")
	q.eventually("the gang to be bound", func() bool { return len(q.bindings()) == len(members) })
	if a, b := q.node("g1"), q.node("g2"); a == b {
		t.Errorf("both are on %s, which advertises one slot", a)
	}
}

// A gang preempts pods for its slots, on whichever nodes: no more than it needs, and nobody
// when it would not fit even so.
func TestGangPreempts(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{features.GenericWorkload: true})
	for what, c := range map[string]struct {
		devices, holders, members int
		evicted                   int // of the holders
	}{
		"exactly enough":      {devices: 3, holders: 3, members: 3, evicted: 3},
		"some are free":       {devices: 3, holders: 2, members: 2, evicted: 1},
		"one device too few":  {devices: 2, holders: 2, members: 3},
		"enough without them": {devices: 4, holders: 2, members: 2},
	} {
		t.Run(what, func(t *testing.T) {
			group := podGroup("g", c.members, 9)
			objects := []runtime.Object{group, advertising("node-a", "100"), advertising("node-b", "100")}
			for i := range c.holders {
				name := fmt.Sprintf("cam-%06d", i+1)
				objects = append(objects, bound(withPriority(pod(fmt.Sprint("holder", i), "1"), 1), []string{"node-a", "node-b"}[i%2],
					ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: name}}}}))
			}
			var names []string
			for i := range c.members {
				names = append(names, fmt.Sprint("g", i+1))
			}
			members := gang("g", names...)
			q := newRealScheduler(t, nil, objects...)
			for i := range c.devices {
				shared(q.cache, fmt.Sprintf("cam-%06d", i+1))
			}
			for _, p := range members {
				check(q.client.Tracker().Add(withPriority(p, 9)))
			}
			if fits := c.members <= c.devices; fits {
				q.eventually("the gang to be bound", func() bool { return len(q.bindings()) == c.members })
			} else {
				q.eventually("the gang to be refused twice", func() bool { return q.tries.Load() > int64(2*c.members) })
				if n := len(q.bindings()); n > 0 {
					t.Errorf("%d of a gang that does not fit are bound", n)
				}
			}
			// A second try that comes before the first one's nominations deletes the same pods again.
			if got := sets.New(q.deleted()...).Len(); got != c.evicted {
				t.Errorf("%d pods are evicted (%v), want %d", got, q.deleted(), c.evicted)
			}
		})
	}
}

// Two pods that can never be bound give their slots back again and again. They
// would activate each other for ever, past the queue's backoff.
func TestFailedPodsDoNotActivateEachOther(t *testing.T) {
	r := cameraRig(t)
	shared(r.cache, "cam-000002")
	pods := []*v1.Pod{pod("x", "1"), pod("y", "1")}
	for _, p := range pods {
		r.cache.SetPod(p)
		r.know(p)
	}
	r.requeued()
	for range 3 {
		for _, p := range pods {
			r.Unreserve(r.ctx, r.schedule(p, "node-a"), p, "node-a")
		}
		sx, sy := r.schedule(pods[0], "node-a"), r.schedule(pods[1], "node-b")
		r.Unreserve(r.ctx, sx, pods[0], "node-a")
		r.Unreserve(r.ctx, sy, pods[1], "node-b")
	}
	r.wantActivated("by what they gave back")
}
