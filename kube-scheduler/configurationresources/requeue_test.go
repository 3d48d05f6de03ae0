package configurationresources

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
)

// A holder's end helps nobody while its slot is still claimed on its node, and one
// pod after that: it does not send all that wait through the scheduler.
func TestWaitingPodsAreNotTriedInVain(t *testing.T) {
	// Time stands still for what has pods tried again: on a slow machine more of them would be tried within a second.
	var tries atomic.Int64
	q := newRealScheduler(t, func(p *Plugin) fwk.Plugin {
		p.cache.Queue.Clock = clocktesting.NewFakeClock(time.Now())
		return &countedPlugin{Plugin: p, tries: &tries}
	}, advertising("node-a", "1"), advertising("node-b", ""))
	shared(q.cache, "cam-000001")
	q.add("node-a", "holder")
	q.eventuallyBound("holder", "node-a")
	its := claim("cam-000001-0", "C:holder-uid:node-a")
	q.cache.SetClaim(its)
	waiting := crowd(300)
	q.add("node-a", waiting...)

	q.rest()
	before := tries.Load()
	q.delete("holder")
	q.eventually("the holder to be gone", func() bool { return !q.cache.Holds("holder-uid") })
	check(q.client.Tracker().Add(advertising("node-c", ""))) // without devices it helps nobody either
	q.rest()
	if got := tries.Load() - before; got > 0 {
		t.Errorf("%d scheduling cycles of %d waiting pods, while no slot was free", got, len(waiting))
	}
	q.cache.DeleteClaim(its)
	q.eventually("one of the waiting to be bound", func() bool {
		return slices.ContainsFunc(waiting, func(name string) bool { return q.node(name) != "" })
	})
	q.rest()
	if got := tries.Load() - before; got > requeue.DefaultFirstBatch {
		t.Errorf("%d scheduling cycles of %d waiting pods for one free slot, want at most %d", got, len(waiting),
			requeue.DefaultFirstBatch)
	}
}

// A node's slots count when it advertises them: a pod that waits for that is tried
// when the node does, and when a pod that counted against it is gone.
func TestTriedWhenANodeAdvertises(t *testing.T) {
	foreign := func(priority int32) *v1.Pod { // it has no assignment, and counts for the kubelet
		p := withPriority(pod("foreign", "1"), priority)
		p.Spec.NodeName = "node-a"
		return p
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		change  func(*realScheduler)
	}{
		"more": {[]runtime.Object{advertising("node-a", "0")}, func(q *realScheduler) {
			check(q.client.Tracker().Update(nodesResource, advertising("node-a", "1"), ""))
		}},
		"at all": {[]runtime.Object{advertising("node-b", "")}, func(q *realScheduler) {
			check(q.client.Tracker().Add(advertising("node-a", "")))
			check(q.client.Tracker().Update(nodesResource, advertising("node-a", "1"), ""))
		}},
		"what a less important pod uses": { // DefaultPreemption evicts it
			[]runtime.Object{advertising("node-a", "1"), foreign(0)}, func(*realScheduler) {}},
		"what another pod used": {
			[]runtime.Object{advertising("node-a", "1"), foreign(2000)}, func(q *realScheduler) { q.delete("foreign") }},
	} {
		t.Run(name, func(t *testing.T) {
			q := newRealScheduler(t, nil, test.objects...)
			shared(q.cache, "cam-000001")
			q.add("node-a", "p")
			test.change(q)
			q.eventuallyBound("p", "node-a")
		})
	}
}

// A slot that is freed while a pod is being tried, after the node was asked, is not
// missed: nothing else comes to activate the pod.
func TestEventDuringACycle(t *testing.T) {
	q := newRealScheduler(t, func(p *Plugin) fwk.Plugin {
		return &filterHook{Plugin: p, after: func() { shared(p.cache, "cam-000001") }}
	}, advertising("node-a", "1"))
	device(q.cache, "cam-000001", map[string]string{"cam-000001-0": "C:other-uid:node-b"}, "node-a", "node-b")
	q.add("node-a", "p")
	q.eventuallyBound("p", "node-a")
}

// filterHook does something after each refusal of Filter.
type filterHook struct {
	*Plugin
	after func()
}

func (h *filterHook) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	status := h.Plugin.Filter(ctx, state, pod, node)
	if !status.IsSuccess() {
		h.after()
	}
	return status
}
