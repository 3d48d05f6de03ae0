package configurationresources

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

// queue is upstream's scheduler with our plugin, on nodes that tests change.
type queue struct {
	*testing.T
	client    *fake.Clientset
	cache     *slotcache.Cache
	scheduler *scheduler.Scheduler
	tries     atomic.Int64 // scheduling cycles
}

// countedPlugin counts scheduling cycles.
type countedPlugin struct {
	*Plugin
	tries *atomic.Int64
}

func (c *countedPlugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c.tries.Add(1)
	return c.Plugin.PreFilter(ctx, state, pod, nodes)
}

var nodesResource = v1.SchemeGroupVersion.WithResource("nodes")

// advertising is a node that advertises so many slots.
func advertising(name, slots string) *v1.Node {
	amounts := v1.ResourceList{"cpu": resource.MustParse("1000"), "pods": resource.MustParse("10000")}
	if slots != "" {
		amounts["akri.sh/cam"] = resource.MustParse(slots)
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{Capacity: amounts, Allocatable: amounts}}
}

func newQueue(t *testing.T, wrap func(*Plugin) fwk.Plugin, objects ...runtime.Object) *queue {
	q := &queue{T: t, client: fake.NewClientset(objects...)}
	q.client.PrependReactor("create", "pods", bindInTracker(q.client))
	if wrap == nil {
		wrap = func(p *Plugin) fwk.Plugin { return &countedPlugin{Plugin: p, tries: &q.tries} }
	}
	q.cache, q.scheduler = runSchedulerWith(t, q.client, wrap)
	return q
}

// rest waits until no pod is to be tried, and returns how many scheduling cycles
// there were.
func (q *queue) rest() int {
	q.Helper()
	q.eventually("the scheduler's queue to be empty", func() bool {
		s := q.scheduler.SchedulingQueue
		return q.cache.Queue.Idle() && len(s.PodsInActiveQ())+len(s.PodsInBackoffQ())+len(s.InFlightPods()) == 0
	})
	return int(q.tries.Load())
}

// add creates pods for a node, the first of them with the highest priority, and
// waits until all have been tried.
func (q *queue) add(node string, names ...string) {
	priority := int32(1000)
	for some := range slices.Chunk(names, 50) { // the fake client's watch holds 100 events
		for _, name := range some {
			p, its := pod(name, "1"), priority
			p.Spec.Priority, p.Spec.SchedulerName = &its, v1.DefaultSchedulerName
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
			if err := q.client.Tracker().Add(p); err != nil {
				q.Fatal(err)
			}
			priority--
		}
		for _, name := range some {
			q.eventually("pod "+name+" to be tried", func() bool {
				w, waits := q.cache.Queue.Get(types.UID(name + "-uid"))
				return waits && w.Reason() != waitreason.NotTried || q.node(name) != ""
			})
		}
	}
}

func (q *queue) eventually(what string, ok func() bool) {
	q.Helper()
	eventually(q.T, what, ok)
}

func (q *queue) node(pod string) string {
	stored, err := q.client.Tracker().Get(podsResource, "default", pod)
	if err != nil {
		q.Fatal(err)
	}
	return stored.(*v1.Pod).Spec.NodeName
}

func (q *queue) delete(pod string) {
	if err := q.client.Tracker().Delete(podsResource, "default", pod); err != nil {
		q.Fatal(err)
	}
}

func crowd(n int) []string { return crowdOf("p", n) }

func crowdOf(what string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%03d", what, i)
	}
	return names
}

// A holder's end helps nobody while its slot is still claimed on its node, and one
// pod after that: it does not send all that wait through the scheduler.
func TestWaitingPodsAreNotTriedInVain(t *testing.T) {
	q := newQueue(t, nil, advertising("node-a", "1"), advertising("node-b", ""))
	shared(q.cache, "cam-000001")
	q.add("node-a", "holder")
	q.eventually("the holder to be bound", func() bool { return q.node("holder") == "node-a" })
	its := claim("cam-000001-0", "C:holder-uid:node-a")
	q.cache.SetClaim(its, false)
	waiting := crowd(300)
	q.add("node-a", waiting...)

	before := q.rest()
	q.delete("holder")
	q.eventually("the holder to be gone", func() bool { return !q.cache.Holds("holder-uid") })
	if err := q.client.Tracker().Add(advertising("node-c", "")); err != nil { // without devices it helps nobody either
		t.Fatal(err)
	}
	if got := q.rest() - before; got > 0 {
		t.Errorf("%d scheduling cycles of %d waiting pods, while no slot was free", got, len(waiting))
	}
	q.cache.DeleteClaim(its)
	q.eventually("one of the waiting to be bound", func() bool {
		return slices.ContainsFunc(waiting, func(name string) bool { return q.node(name) != "" })
	})
	// The first ones and, where these take longer than a batch's time, those of two more.
	const most = 7 * requeue.DefaultFirstBatch
	if got := q.rest() - before; got > most {
		t.Errorf("%d scheduling cycles of %d waiting pods for one free slot, want at most %d", got, len(waiting), most)
	}
}

// A node's slots count when it advertises them: a pod that waits for that is tried
// when the node does, and when a pod that counted against it is gone.
func TestTriedWhenANodeAdvertises(t *testing.T) {
	t.Run("more", func(t *testing.T) {
		q := newQueue(t, nil, advertising("node-a", "0"))
		shared(q.cache, "cam-000001")
		q.add("node-a", "p")
		if err := q.client.Tracker().Update(nodesResource, advertising("node-a", "1"), ""); err != nil {
			t.Fatal(err)
		}
		q.eventually("the pod to be bound", func() bool { return q.node("p") == "node-a" })
	})
	t.Run("at all", func(t *testing.T) {
		q := newQueue(t, nil, advertising("node-b", ""))
		device(q.cache, "cam-000001", nil, "node-a")
		q.add("node-a", "p")
		if err := q.client.Tracker().Add(advertising("node-a", "")); err != nil {
			t.Fatal(err)
		}
		if err := q.client.Tracker().Update(nodesResource, advertising("node-a", "1"), ""); err != nil {
			t.Fatal(err)
		}
		q.eventually("the pod to be bound", func() bool { return q.node("p") == "node-a" })
	})
	t.Run("what a less important pod uses", func(t *testing.T) { // DefaultPreemption evicts it
		foreign := withPriority(pod("foreign", "1"), 0)
		foreign.Spec.NodeName = "node-a"
		q := newQueue(t, nil, advertising("node-a", "1"), foreign)
		shared(q.cache, "cam-000001")
		q.add("node-a", "p")
		q.eventually("the pod to be bound", func() bool { return q.node("p") == "node-a" })
	})
	t.Run("what another pod used", func(t *testing.T) {
		foreign := withPriority(pod("foreign", "1"), 2000) // it has no assignment, and counts for the kubelet
		foreign.Spec.NodeName = "node-a"
		q := newQueue(t, nil, advertising("node-a", "1"), foreign)
		shared(q.cache, "cam-000001")
		q.add("node-a", "p")
		q.delete("foreign")
		q.eventually("the pod to be bound", func() bool { return q.node("p") == "node-a" })
	})
}

// A slot that is freed while a pod is being tried, after the node was asked, is not
// missed: nothing else comes to activate the pod.
func TestEventDuringACycle(t *testing.T) {
	q := newQueue(t, func(p *Plugin) fwk.Plugin {
		return &filterHook{Plugin: p, after: func() { shared(p.cache, "cam-000001") }}
	}, advertising("node-a", "1"))
	device(q.cache, "cam-000001", map[string]string{"cam-000001-0": "C:other-uid:node-b"}, "node-a", "node-b")
	q.add("node-a", "p")
	q.eventually("the pod to be bound", func() bool { return q.node("p") == "node-a" })
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
