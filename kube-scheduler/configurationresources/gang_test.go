package configurationresources

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
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

// A gang of three with two slots: upstream's scheduler, gangs on, reserves two,
// is refused the third and reverts. Nothing is bound or held, until there is a
// third slot; then all are bound.
func TestGangInTheRealScheduler(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate,
		featuregatetesting.FeatureOverrides{features.GenericWorkload: true})
	members := gang("g", "g1", "g2", "g3")
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "default"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 3}
	objects := []runtime.Object{group, advertising("node-a", "100"), advertising("node-b", "100")}
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

// A gang is reserved pod by pod and reverted as a whole, the last first, whether
// it fits or not; only then its pods are reserved again, to be bound (scheduler's
// schedule_one_podgroup.go; TestGangInTheRealScheduler). What is reverted helps nobody who was not
// refused meanwhile, least of all the gang.
func TestGangReverted(t *testing.T) {
	r := cameraRig(t)
	shared(r.cache, "cam-000002")
	members := gang("g", "g1", "g2", "g3")
	other := pod("other", "1")
	for _, p := range append(slices.Clone(members), other) {
		r.cache.SetPod(p)
		r.know(p)
	}
	r.requeued()
	for range 2 {
		s1, s2 := r.schedule(members[0], "node-a"), r.schedule(members[1], "node-b")
		r.refused(members[2], "node-a")
		r.Unreserve(r.ctx, s2, members[1], "node-b")
		r.Unreserve(r.ctx, s1, members[0], "node-a")
		r.wantFree("reverted", "cam", 2)
	}
	r.wantActivated("by what the gang gave back")
	// Now another pod was refused meanwhile.
	state := r.schedule(members[0], "node-a")
	r.schedule(members[1], "node-b")
	r.refused(other, "node-a")
	r.Unreserve(r.ctx, state, members[0], "node-a")
	r.wantActivated("one of the gang has failed", "other")
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
