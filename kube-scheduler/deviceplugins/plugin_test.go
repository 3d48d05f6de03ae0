package deviceplugins

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const deadline = 20 * time.Second

// eventually waits until the condition holds, and says what it waited for.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), time.Millisecond, deadline, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("waited %s for this: %s", deadline, what)
	}
}

func widgets(t *testing.T, name string, n int) *v1.Pod {
	t.Helper()
	return parsePod(t, name, "", "", fmt.Sprintf("main example.com/widget=%d", n))
}

// Without plugins, and without requests, nothing is done.
func TestNothingToDo(t *testing.T) {
	plain := parsePod(t, "plain", "", "", "main cpu=1 akri.sh/cam=1")
	foreign := parsePod(t, "foreign", "", "", "main example.com/widget=1")
	asking := parsePod(t, "asking", "", "", "main\nannotation "+`{"runningcontainer":{"main":{"requests":{"example.com/widget":1}}}}`)
	for name, test := range map[string]struct {
		rig    *rig
		pod    *v1.Pod
		skips  bool
		reason string
	}{
		"plain":                   {newRig(t, host.Options{}, newMoody()), plain, true, ""},
		"plain, no plugins":       {newRig(t, host.Options{}), plain, true, ""},
		"in the spec, no plugins": {newRig(t, host.Options{}), foreign, true, ""},
		"in the spec":             {newRig(t, host.Options{}, newMoody()), foreign, false, ""},
		"annotation, no plugins":  {newRig(t, host.Options{}), asking, false, `requests 1 of "example.com/widget" for container "main", and no device scheduler plugin is loaded`},
	} {
		t.Run(name, func(t *testing.T) {
			r, state := test.rig, framework.NewCycleState()
			_, status := r.PreFilter(r.ctx, state, test.pod, nil)
			if status.IsSkip() != test.skips || !strings.Contains(status.Message(), test.reason) {
				t.Fatalf("PreFilter: %v", status)
			}
			if _, signed := r.SignPod(r.ctx, test.pod); signed.IsSuccess() != test.skips {
				t.Errorf("SignPod: %v", signed)
			}
			if !test.skips {
				return
			}
			if status := r.PreScore(r.ctx, state, test.pod, nil); !status.IsSkip() {
				t.Errorf("PreScore: %v", status)
			}
			if status := r.Reserve(r.ctx, state, test.pod, "a"); !status.IsSuccess() {
				t.Errorf("Reserve: %v", status)
			}
			if status := r.Bind(r.ctx, state, test.pod, "a"); !status.IsSkip() {
				t.Errorf("Bind: %v", status)
			}
			r.Unreserve(r.ctx, state, test.pod, "a")
			allocations := testing.AllocsPerRun(100, func() { r.mightAsk(test.pod) })
			if allocations > 0 {
				t.Errorf("%v allocations to find out that there is nothing to do", allocations)
			}
		})
	}
}

// A pod is not tried before all nodes and pods are known, and then it is.
func TestNotSynced(t *testing.T) {
	r := newRig(t, host.Options{}, newMoody())
	var mu sync.Mutex
	ready := false
	r.cache.sources = append(r.cache.sources, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ready
	})
	p := widgets(t, "p", 1)
	r.create(t, p)
	if _, status := r.PreFilter(r.ctx, framework.NewCycleState(), p, nil); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Fatal(status)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go r.cache.follow(ctx)
	mu.Lock()
	ready = true
	mu.Unlock()
	eventually(t, "the pod is activated", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Equal(r.activated, []string{"p"})
	})
}

// What a node gets during a pod's scheduling cycle is not lost on the pod.
func TestNodeEventDuringACycle(t *testing.T) {
	s := &story{}
	r := newRig(t, host.Options{}, newMoody())
	s.rig = r
	before := s.node(t, "a", "1x1", "")
	r.cache.setNode(before)
	p := widgets(t, "p", 2)
	r.create(t, p)
	state := framework.NewCycleState()
	if _, status := r.PreFilter(r.ctx, state, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := r.Filter(r.ctx, state, p, frameworkNode(before)); status.IsSuccess() {
		t.Fatal("it fits")
	}
	r.cache.setNode(s.node(t, "a", "1x2", ""))
	if got := r.requeued(); !slices.Equal(got, []string{"p"}) { // the framework tries a pod again that is being tried
		t.Errorf("activated %v", got)
	}
}

// What failed is asked again, later and later, until it goes well.
func TestRetryBacksOff(t *testing.T) {
	registerMetrics()
	s, plugin := &story{}, newMoody()
	r := newRig(t, host.Options{}, plugin)
	s.rig = r
	clock := testingclock.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go r.cache.retry(ctx, clock)
	plugin.set("AddNode", "panic")
	r.cache.setNode(s.node(t, "a", "1x1", ""))
	for _, delay := range []time.Duration{minRetry, 2 * minRetry, 4 * minRetry} {
		eventually(t, "it waits to retry", clock.HasWaiters)
		clock.Step(delay - time.Millisecond)
		if !clock.HasWaiters() {
			t.Fatalf("retried before %s", delay)
		}
		clock.Step(time.Millisecond)
	}
	eventually(t, "it waits to retry", clock.HasWaiters)
	if n, err := testutil.GetCounterMetricValue(faults.WithLabelValues("widget", "AddNode", "panic")); n < 4 || err != nil {
		t.Errorf("metric: %v faults, %v", n, err)
	}
	plugin.set("AddNode", "")
	clock.Step(maxRetry)
	eventually(t, "the node is usable", func() bool {
		return r.cache.judge("a", r.cache.host.Node("a"), request1(t)).fits()
	})
}

func request1(t *testing.T) *request {
	t.Helper()
	req, err := requestOf(widgets(t, "p", 1))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// Many filters, reservations and news at once, over a plugin that locks nothing.
func TestParallel(t *testing.T) {
	s := &story{}
	r := newRig(t, host.Options{}, newMoody())
	s.rig = r
	small, large := s.node(t, "a", "2x2", ""), s.node(t, "a", "4x2", "")
	r.cache.setNode(small)
	var wg sync.WaitGroup
	for i := range 4 {
		p := widgets(t, fmt.Sprint("p", i), 1)
		r.create(t, p)
		wg.Go(func() {
			for range 30 {
				state := framework.NewCycleState()
				if _, status := r.PreFilter(r.ctx, state, p, nil); !status.IsSuccess() {
					t.Error(status)
					return
				}
				var filters sync.WaitGroup
				for range 4 {
					filters.Go(func() { r.Filter(r.ctx, state, p, frameworkNode(small)) })
				}
				filters.Wait()
				r.Score(r.ctx, state, p, frameworkNode(small))
				r.Reserve(r.ctx, state, p, "a")
				r.Unreserve(r.ctx, state, p, "a")
			}
		})
	}
	wg.Go(func() {
		for range 30 {
			r.cache.setNode(large)
			r.cache.deleteNode(large)
			r.cache.setNode(small)
			r.requeued()
		}
	})
	wg.Wait()
	if used := r.cache.host.Node("a").Info().Used; len(used) > 0 {
		t.Errorf("used in the end: %v", used)
	}
}

// An unknown outcome of a bind: the API says what counts.
func TestObservedBeforeUnreserve(t *testing.T) {
	s := &story{}
	r := newRig(t, host.Options{}, newMoody())
	s.rig, s.nodes, s.states, s.pods = r, map[string]*v1.Node{"a": s.node(t, "a", "1x1", "")}, map[string]fwk.CycleState{}, map[string]*v1.Pod{}
	r.cache.setNode(s.nodes["a"])
	p := widgets(t, "p", 1)
	r.create(t, p)
	s.schedule(t, p)
	s.bind(t, p) // and the informer has seen it
	r.Unreserve(r.ctx, s.states["p"], p, "a")
	if used := r.cache.host.Node("a").Info().Used; len(used) != 1 {
		t.Errorf("a bound pod's devices were given back: %v", used)
	}
	// Another scheduler bound it elsewhere, or here without devices: nothing is held.
	for _, node := range []string{"a", "b"} {
		other := widgets(t, "other", 1)
		r.cache.deletePod(s.pods["p"])
		r.create(t, other)
		s.schedule(t, other)
		other.Spec.NodeName = node
		r.cache.setPod(other)
		if used := r.cache.host.Node("a").Info().Used; len(used) != 0 {
			t.Errorf("bound to %s by another: %v", node, used)
		}
	}
}

func TestHints(t *testing.T) {
	r := newRig(t, host.Options{}, newMoody())
	registered, err := r.EventsToRegister(r.ctx)
	if err != nil || len(registered) != 2 {
		t.Fatal(registered, err)
	}
	nominated, plain := widgets(t, "n", 1), parsePod(t, "n", "", "", "main cpu=1")
	nominated.Status.NominatedNodeName, plain.Status.NominatedNodeName = "a", "a"
	ended := nominated.DeepCopy()
	ended.Spec.NodeName = "a"
	for gone, want := range map[*v1.Pod]fwk.QueueingHint{nominated: fwk.Queue, plain: fwk.QueueSkip, ended: fwk.QueueSkip, widgets(t, "n", 1): fwk.QueueSkip} {
		if got, err := registered[1].QueueingHintFn(r.cache.logger, widgets(t, "p", 1), gone, nil); got != want || err != nil {
			t.Errorf("%s on %q for %q is gone: hint %v, %v; want %v", gone.Name, gone.Spec.NodeName, gone.Status.NominatedNodeName, got, err, want)
		}
	}
	p := widgets(t, "p", 1)
	corrected := p.DeepCopy()
	corrected.Annotations[assignment.Annotation] = "{}"
	for _, test := range []struct {
		old, new *v1.Pod
		want     fwk.QueueingHint
	}{{p, corrected, fwk.Queue}, {p, p, fwk.QueueSkip}, {widgets(t, "q", 1), widgets(t, "q", 2), fwk.QueueSkip}, {p, nil, fwk.QueueSkip}} {
		if got, err := registered[0].QueueingHintFn(r.cache.logger, p, test.old, test.new); got != test.want || err != nil {
			t.Errorf("hint %v, %v; want %v", got, err, test.want)
		}
	}
}

func TestNormalizeScore(t *testing.T) {
	for _, test := range []struct{ scores, want []int64 }{
		{[]int64{scoreUnit, scoreUnit / 2, 0}, []int64{100, 50, 0}},
		{[]int64{scoreUnit / 4, scoreUnit / 4}, []int64{100, 100}},
		{[]int64{0, 0}, []int64{0, 0}},
		{[]int64{scoreUnit * maxScore, 1}, []int64{100, 0}},
	} {
		var list fwk.NodeScoreList
		for _, s := range test.scores {
			list = append(list, fwk.NodeScore{Score: s})
		}
		(*Plugin)(nil).NormalizeScore(context.Background(), nil, nil, list)
		for i, want := range test.want {
			if list[i].Score != want {
				t.Errorf("%v: %v, want %v", test.scores, list, test.want)
			}
		}
	}
}
