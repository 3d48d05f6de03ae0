package requeue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/types/slot"
)

// rig is a Queue of pods, whose request is the pod.
type rig struct {
	*Queue[*v1.Pod]
	clock     *clocktesting.FakeClock
	possible  map[string]func(*v1.Pod) bool // by key; without one nothing is
	activated []string
}

func newRig() *rig {
	r := &rig{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), possible: map[string]func(*v1.Pod) bool{}}
	r.Queue = New(Options[*v1.Pod]{Logger: klog.Background(), Activator: r, Clock: r.clock,
		Possible: func(key string) func(*v1.Pod) bool {
			return r.possible[key]
		}, MinPreemptorPriority: func(slots []slot.Name) (int32, bool) { // a slot's number is its own
			least := slices.MinFunc(slots, func(a, b slot.Name) int { return a.Index - b.Index }).Index
			return int32(least), least < 1000
		}})
	return r
}

// Activate implements fwk.PodActivator.
func (r *rig) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		r.activated = append(r.activated, pods[uid].Name)
	}
}

func (r *rig) free(key string) {
	r.possible[key] = func(*v1.Pod) bool { return true }
	r.Record(Event{Freed: []string{key}})
}

// after steps until so much time has passed and returns who was activated.
func (r *rig) after(d time.Duration) []string {
	end := r.clock.Now().Add(d)
	r.activated = nil
	for {
		wait, more := r.Step()
		if left := end.Sub(r.clock.Now()); !more || wait > left {
			r.clock.Step(left)
			return r.activated
		}
		r.clock.Step(wait)
	}
}

// afterTrying is after where pods are tried, in vain, as soon as they are activated.
func (r *rig) afterTrying(d time.Duration) (activated []string) {
	for more := r.after(0); len(more) > 0; more = r.after(0) {
		activated = append(activated, more...)
		r.try(more...)
	}
	return append(activated, r.after(d)...)
}

// await has a pod wait that was tried.
func (r *rig) await(p *v1.Pod, keys ...string) {
	r.Add(p, p, keys...)
	r.Try(p.UID)
}

// pod has its name's number as priority: p07 has 7.
func pod(name string) *v1.Pod {
	var priority int32
	_, _ = fmt.Sscanf(name, "p%d", &priority)
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
}

// crowd has so many pods wait for the key, tried before, and returns their names.
func (r *rig) crowd(key string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("p%03d", i)
		r.await(pod(names[i]), key)
	}
	return names
}

func (r *rig) try(names ...string) {
	for _, name := range names {
		r.Try(types.UID(name))
	}
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: activated %v, want %v", what, got, want)
	}
}

// Who is activated, for what, and when.
func TestEvents(t *testing.T) {
	r := newRig()
	for name, keys := range map[string][]string{"a": {"x"}, "b": {"x", "y"}, "c": {"x", "y"}} {
		r.await(pod(name), keys...)
	}
	want(t, "nothing", r.after(time.Hour))
	r.Record(Event{Freed: []string{"x"}})
	want(t, "freed, and taken already", r.after(0))
	r.free("y")
	want(t, "freed", r.after(0), "b", "c")
	r.free("x")
	want(t, "freed, while two were activated and not tried", r.after(0), "a")
	r.free("unknown")
	r.Delete("b")
	r.try("a", "c")
	want(t, "all tried", r.after(time.Hour))
	r.free("y")
	want(t, "one is gone", r.after(0), "c")
	r.try("c")
	r.Record(Event{Freed: []string{"x"}})
	r.try("a")
	want(t, "tried since the event", r.after(0), "c")
	r = newRig()
	r.await(pod("any"))
	r.free("z")
	want(t, "of any key", r.after(0), "any")
}

// A batch follows the other when that has been tried, while something is free; the most important
// pods are first.
func TestBatches(t *testing.T) {
	r := newRig()
	names := r.crowd("x", 100)
	r.free("x")
	want(t, "at once", r.after(0), names[84:]...)
	r.try(names[85:]...)
	want(t, "while one has not been tried", r.after(RetryInterval-soon))
	r.try(names[84])
	want(t, "when all have", r.after(0), names[52:84]...)
	r.possible["x"] = nil
	r.try(names...)
	want(t, "taken, and tried", r.after(time.Hour))
	r.free("x")
	want(t, "again", r.after(0), names[84:]...)
}

// The next batch does not wait for pods that are gone, nor for long for those that are not tried.
func TestBatchWithPodsThatAreNotTried(t *testing.T) {
	r := newRig()
	names := r.crowd("x", 100)
	r.free("x")
	r.after(0)
	r.try(names[85:]...)
	r.Delete(types.UID(names[84]))
	want(t, "one is gone", r.after(0), names[52:84]...)
	r.try(names[53:84]...)
	want(t, "one is not tried", r.after(RetryInterval-soon))
	want(t, "nor in its time", r.after(soon), names[:53]...)
	r.try(names[52])
	want(t, "of a batch before", r.after(RetryInterval-soon))
}

// Pods that were not tried are in the framework's queue, or kept back: nothing is done about them,
// as in a scheduler that does not lead.
func TestPodsThatWereNotTried(t *testing.T) {
	r := newRig()
	r.Finishes = true
	p := pod("p")
	r.Add(p, p, "x")
	r.Options.Possible = func(string) func(*v1.Pod) bool {
		t.Error("the plugin was asked what is possible")
		return nil
	}
	r.free("x")
	r.RetryNow("p")
	r.RetryLater("p")
	r.RetryWaiting(nil, nil)
	want(t, "not tried", r.after(time.Hour))
}

// A Step looks at a bounded number of pods, however many wait; in the end all are looked at, once.
func TestStepLooksAtABoundedNumber(t *testing.T) {
	r := newRig()
	names := r.crowd("x", 1000)
	looked, most := 0, 0
	r.possible["x"] = func(*v1.Pod) bool { looked++; return false }
	r.Record(Event{Freed: []string{"x"}})
	for wait, more := r.Step(); more && wait == 0; wait, more = r.Step() {
		most = max(most, looked)
		looked = 0
	}
	if most == 0 || most > maxPerStep || looked == 0 {
		t.Errorf("a Step looked at %d pods, and the last one at %d", most, looked)
	}
	r.RetryWaiting(nil, nil)
	r.Step()
	activated := r.activated
	if len(activated) > maxPerStep {
		t.Errorf("a Step activated %d pods", len(activated))
	}
	want(t, "all", append(activated, r.after(0)...), names...)
}

// Pods that are not first in line are tried although events follow each other so closely
// that no batch is the last, and the first ones are tried in vain.
func TestBatchesGrow(t *testing.T) {
	r := newRig()
	names := r.crowd("x", 100)
	activated := map[string]bool{}
	for range 30 {
		r.free("x")
		for _, name := range r.after(20 * time.Millisecond) {
			activated[name] = true
			r.try(name)
		}
	}
	if len(activated) != len(names) {
		t.Errorf("%d of %d pods were activated within 600 ms", len(activated), len(names))
	}
}

// All of ten thousand pods are activated within a second, if the scheduler tries them at once.
func TestAllWithinASecond(t *testing.T) {
	r := newRig()
	for i := range 10_000 {
		r.await(pod(fmt.Sprintf("p%05d", i)), "x")
	}
	r.free("x")
	if got := len(r.afterTrying(time.Second - 1)); got != 10_000 {
		t.Errorf("%d of 10000 pods were activated within a second", got)
	}
}

// Pods are activated that can preempt for something, though nothing is free.
func TestPreemptors(t *testing.T) {
	r := newRig()
	names := r.crowd("x", 100)
	never, policy := pod("p200"), v1.PreemptNever
	never.Spec.PreemptionPolicy = &policy
	r.await(never, "x")
	r.Record(Event{Preemptible: map[string][]slot.Name{"x": {{Index: 96}, {Index: 2000}}}})
	want(t, "more important ones", r.after(time.Second/2), names[96:]...)
	r.try(names...)
	r.free("x")
	want(t, "freed", r.after(0), append(slices.Clone(names[85:]), "p200")...)
	r.possible["x"] = nil
	r.Taken("x", slot.Name{Index: 50})
	r.try(append(names[85:], "p200")...)
	want(t, "taken before all were activated", r.afterTrying(time.Second/2), names[50:85]...)
	r.try(append(names, "p200")...)
	r.Taken("x", slot.Name{Index: 10})
	want(t, "taken, when that is over", r.after(time.Second/2))
}

// Of many that can preempt for a slot no more are activated once nobody can.
func TestPreemptorsWhileOneCan(t *testing.T) {
	r := newRig()
	names, can := r.crowd("x", 100), true
	r.MinPreemptorPriority = func([]slot.Name) (int32, bool) { return 0, can }
	r.Record(Event{Preemptible: map[string][]slot.Name{"x": {{}}}})
	want(t, "at once", r.after(0), names[84:]...)
	can = false
	want(t, "preempted for", r.after(time.Second/2))
}

// What was freed is taken while the batch is made, after Run has read which slots are
// preemptible: more important pods are activated all the same.
func TestTakenWhileABatchIsMade(t *testing.T) {
	r := newRig()
	names := r.crowd("x", 20)
	r.possible["x"] = func(*v1.Pod) bool {
		r.Taken("x", slot.Name{Index: 15})
		r.possible["x"] = nil
		return false
	}
	r.Record(Event{Freed: []string{"x"}})
	want(t, "taken", r.after(time.Second/2), names[15:]...)
}

// A pod begins to wait, and is tried, while a batch is made; an event after that is found by
// the next Step.
func TestWaitsSinceABatchWasMade(t *testing.T) {
	r := newRig()
	r.crowd("x", 1)
	r.possible["x"] = func(*v1.Pod) bool {
		if _, waits := r.Get("p9"); !waits {
			r.await(pod("p9"), "x")
			r.Record(Event{Freed: []string{"x"}})
		}
		return true
	}
	r.Record(Event{Freed: []string{"x"}})
	want(t, "both", r.afterTrying(time.Second/2), "p000", "p9")
}

// What a pod gives back is no news to itself, nor to its gang, nor to pods that fail after
// Reserve as it does. Other events are.
func TestGaveBack(t *testing.T) {
	r := newRig()
	r.possible["x"] = func(*v1.Pod) bool { return true }
	group := "g"
	failed, mate := pod("failed"), pod("mate")
	failed.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	mate.Spec.SchedulingGroup = failed.Spec.SchedulingGroup
	for _, p := range []*v1.Pod{failed, mate, pod("other"), pod("alike"), pod("untried")} {
		r.Add(p, p, "x")
	}
	try := func() {
		r.try("failed", "mate", "other", "alike")
		r.Reserved("failed")
		r.Reserved("alike")
	}
	try()
	r.GaveBack("failed", Event{Freed: []string{"x"}})
	want(t, "given back", r.after(0), "other")
	try()
	r.Record(Event{Freed: []string{"x"}})
	r.GaveBack("failed", Event{Freed: []string{"x"}})
	want(t, "freed, and given back", r.after(0), "alike", "failed", "mate", "other")
	try()
	r.try("alike")
	r.GaveBack("failed", Event{Preemptible: map[string][]slot.Name{"x": {{}}}})
	want(t, "rejected since", r.after(0), "alike", "other")
}

// A pod that was activated and is not tried is activated again, later and later. Events do not
// change that: it is to be tried anyway.
func TestRetries(t *testing.T) {
	r := newRig()
	r.await(pod("p"), "x")
	r.free("x")
	if got := strings.Join(r.after(20*time.Second), " "); got != "p p p p p" { // after 0, 1, 3, 7 and 15 s
		t.Errorf("activated %q within 20 s", got)
	}
	r.Record(Event{Freed: []string{"x"}})
	want(t, "after an event", r.after(11*time.Second-soon))
	want(t, "later", r.after(soon), "p")
	r.try("p")
	want(t, "once tried", r.after(time.Hour))
	r.RetryLater("p")
	want(t, "to be tried in a while", r.after(RetryInterval/2))
	want(t, "in a while", r.after(RetryInterval/2), "p")
	r.try("p")
	r.RetryNow("p")
	r.RetryNow("unknown")
	want(t, "at once", r.after(0), "p")
}

// Run answers events without being asked to, sees in time that a try is not finished although it
// had nothing to do when that began, and ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := finishingRig("p")
		r.Clock = clock.RealClock{} // the bubble's
		go r.Run(t.Context())
		activated := func() []string {
			synctest.Wait()
			defer func() { r.activated = nil }()
			return r.activated
		}
		want(t, "nothing", activated())
		r.free("cam")
		want(t, "free", activated(), "p")
		r.Try("p")
		r.Asked("p")
		time.Sleep(RetryInterval * 5 / 2)
		want(t, "tried", activated())
		r.RetryNow("p")
		want(t, "at once", activated(), "p")
		r.Try("p")
		time.Sleep(RetryInterval)
		want(t, "not finished", activated(), "p")
	})
}

// The framework tries a group when one of its pods is activated, and again by itself, but may not come to all of them:
// those are not activated over and over.
func TestGroupIsActivatedOnce(t *testing.T) {
	r, group := newRig(), "g"
	for _, name := range []string{"p1", "p2"} {
		p := pod(name)
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
		r.await(p, "x")
	}
	r.free("x")
	want(t, "freed", r.after(0), "p1", "p2")
	r.try("p1")
	want(t, "p2 was not tried", r.after(time.Hour))
	r.free("x")
	want(t, "freed again", r.after(0), "p1", "p2")
	r.RetryLater("p2")
	want(t, "to be tried later", r.after(time.Hour), "p2")
}
