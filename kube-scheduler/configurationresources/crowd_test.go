package configurationresources

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

// 5,000 pods of 100 priorities, mixed, come for four slots in upstream's scheduler, and each that
// can preempts. That comes to rest with the most important ones in the slots, and so it does when a
// slot is freed. One that is more important than all preempts once. How many are activated for a
// slot: requeue's TestFiveThousandWait.
func TestFiveThousandThatPreempt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute: make test-all")
	}
	const waiting, priorities, slots = 5000, 100, 4
	var tried atomic.Int64
	w := newLoggingScheduler(t, klog.Logger{}, func(p *Plugin) fwk.Plugin { return &countedPlugin{Plugin: p, tries: &tried} }, advertising("node-a", "1000"))
	w.cache.SetConfiguration(cameras(slots))
	device(w.cache, "cam-000001", nil, "node-a")
	rest := func() int { w.rest(); return int(tried.Load()) }
	add := func(names []string, priority func(i int) int32) {
		for some := range slices.Chunk(names, 50) { // the fake client's watch holds 100 events
			for _, name := range some {
				var i int
				_, _ = fmt.Sscanf(name, "p%d", &i)
				check(w.client.Tracker().Add(withPriority(pod(name, "1"), priority(i))))
			}
			for _, name := range some {
				w.eventually("pod "+name+" to be tried", func() bool {
					q, waits := w.cache.Queue.Get(types.UID(name + "-uid"))
					return waits && q.Reason() != waitreason.NotTried || !w.there(name) || w.node(name) != ""
				})
			}
		}
	}
	names := make([]string, waiting+slots)
	for i := range names {
		names[i] = fmt.Sprint("p", i)
	}
	searches := w.searches(func() {
		add(names, func(i int) int32 { return int32(i * 37 % priorities) })
		w.rest()
	})
	holders := func() (is []int32) {
		for _, p := range w.holders() {
			is = append(is, *p.Spec.Priority)
		}
		slices.Sort(is)
		return is
	}
	if is := holders(); !slices.Equal(is, []int32{99, 99, 99, 99}) {
		t.Errorf("the slots are held by the priorities %v, want the highest", is)
	}
	evicted, tries := w.evictions(), rest()
	t.Logf("%d pods: %d tries, %d searches, %d evictions", len(names), tries, searches, evicted)
	if most := priorities * slots; evicted == 0 || evicted > most {
		t.Errorf("%d evictions, want at most %d: each has a slot of a more important pod", evicted, most)
	}
	if most := 2 * waiting; tries > most {
		t.Errorf("%d tries of %d pods, want at most %d", tries, waiting, most)
	}
	w.delete(w.holders()[0].Name)
	w.eventually("the slot to be taken", func() bool { return len(w.holders()) == slots })
	if is := holders(); !slices.Equal(is, []int32{99, 99, 99, 99}) {
		t.Errorf("the slots are held by the priorities %v, want the highest", is)
	}
	after := rest()
	t.Logf("a slot is freed: %d tries", after-tries) // 16, and each pod once at most where the scheduler is slow
	if after-tries > waiting {
		t.Errorf("%d tries for one slot", after-tries)
	}
	evicted = w.evictions()
	n := w.searches(func() {
		add([]string{"p9999"}, func(int) int32 { return 1000 })
		w.eventuallyBound("p9999", "node-a")
		w.rest()
	})
	t.Logf("one that is more important than all: %d searches, %d tries", n, rest()-after)
	if got := w.evictions() - evicted; got != 1 || n > preemption.MaxPreemptions+1 || rest()-after > waiting {
		t.Errorf("one that is more important than all: %d evictions, %d searches, %d tries", got, n, rest()-after)
	}
}

func (q *realScheduler) there(pod string) bool {
	_, err := q.client.Tracker().Get(podsResource, "default", pod)
	return err == nil
}

// holders are the pods that are bound.
func (q *realScheduler) holders() (bound []*v1.Pod) {
	list := must(q.client.Tracker().List(podsResource, v1.SchemeGroupVersion.WithKind("Pod"), "default")).(*v1.PodList)
	for i := range list.Items {
		if list.Items[i].Spec.NodeName != "" {
			bound = append(bound, &list.Items[i])
		}
	}
	return bound
}

// evictions is how many pods were deleted through the API.
func (q *realScheduler) evictions() (n int) {
	for _, a := range q.client.Actions() {
		if _, is := a.(clienttesting.DeleteAction); is && a.Matches("delete", "pods") {
			n++
		}
	}
	return n
}
