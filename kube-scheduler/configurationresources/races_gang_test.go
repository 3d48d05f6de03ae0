package configurationresources

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
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

// A gang is reserved pod by pod and reverted as a whole, the last first, whether
// it fits or not; only then its pods are reserved again, to be bound (scheduler's
// schedule_one_podgroup.go). What is reverted helps nobody who was not refused
// meanwhile, least of all the gang.
func TestGangReverted(t *testing.T) {
	r := newScheduler(t)
	shared(r.cache, "cam-000002")
	members := gang("g", "g1", "g2", "g3")
	other := pod("other", "1")
	for _, p := range append(slices.Clone(members), other) {
		r.cache.SetPod(p)
		r.know(p)
	}
	r.requeued()
	for range 2 {
		s1, s2 := r.schedule(t, members[0], "node-a"), r.schedule(t, members[1], "node-b")
		if _, status := r.filter(members[2], "node-a"); status.Code() != fwk.Unschedulable {
			t.Fatalf("the third of two slots: %v", status)
		}
		r.Unreserve(r.ctx, s2, members[1], "node-b")
		r.Unreserve(r.ctx, s1, members[0], "node-a")
		if r.cache.Holds("g1-uid") || r.cache.Holds("g2-uid") || ledgerOf(r.cache).Free("cam") != 2 {
			t.Fatal("the reverted gang holds slots")
		}
	}
	if got := r.requeued(); len(got) != 0 {
		t.Errorf("activated by what the gang gave back: %v", got)
	}
	// With one device more the whole gang fits: simulated, reverted, reserved, bound.
	shared(r.cache, "cam-000003")
	r.requeued()
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
	if got := r.requeued(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("activated: %v, want other", got)
	}
	if status := r.Bind(r.ctx, states[0], members[0], "node-a"); !status.IsSuccess() {
		t.Error(status)
	}
}

// Two pods that can never be bound give their slots back again and again. They
// would activate each other for ever, past the queue's backoff.
func TestFailedPodsDoNotActivateEachOther(t *testing.T) {
	r := newScheduler(t)
	shared(r.cache, "cam-000002")
	pods := []*v1.Pod{pod("x", "1"), pod("y", "1")}
	for _, p := range pods {
		r.cache.SetPod(p)
		r.know(p)
	}
	r.requeued()
	for range 3 {
		for _, p := range pods {
			r.Unreserve(r.ctx, r.schedule(t, p, "node-a"), p, "node-a")
		}
		sx, sy := r.schedule(t, pods[0], "node-a"), r.schedule(t, pods[1], "node-b")
		r.Unreserve(r.ctx, sx, pods[0], "node-a")
		r.Unreserve(r.ctx, sy, pods[1], "node-b")
	}
	if got := r.requeued(); len(got) != 0 {
		t.Errorf("activated: %v", got)
	}
}
