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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func widgets(t *testing.T, name string, n int) *v1.Pod {
	t.Helper()
	return parsePod(t, name, "", "", fmt.Sprintf("main example.com/widget=%d", n))
}

// Without plugins, and without requests, nothing is done.
func TestNothingToDo(t *testing.T) {
	plain := parsePod(t, "plain", "", "", "main cpu=1 akri.sh/cam=1")
	foreign := parsePod(t, "foreign", "", "", "main example.com/widget=1")
	asking := written(t, "asking", "", "example.com/widget", 1)
	for name, test := range map[string]struct {
		rig          *rig
		pod          *v1.Pod
		skips, signs bool
		reason       string
	}{
		"plain":                   {newRig(t, newMoody()), plain, true, true, ""},
		"plain, no plugins":       {newRig(t), plain, true, true, ""},
		"none of it":              {newRig(t, newMoody()), widgets(t, "none", 0), true, false, ""},
		"in the spec, no plugins": {newRig(t), foreign, false, true, ""},
		"in the spec":             {newRig(t, newMoody()), foreign, false, false, ""},
		"annotation, no plugins":  {newRig(t), asking, false, true, `requests 1 of "example.com/widget" for container "main", and no device scheduler plugin is loaded`},
	} {
		t.Run(name, func(t *testing.T) {
			r, state := test.rig, framework.NewCycleState()
			_, status := r.PreFilter(r.ctx, state, test.pod, nil)
			if status.IsSkip() != test.skips || !strings.Contains(status.Message(), test.reason) {
				t.Fatalf("PreFilter: %v", status)
			}
			if _, signed := r.SignPod(r.ctx, test.pod); signed.IsSuccess() != test.signs {
				t.Errorf("SignPod: %v", signed)
			}
			if !test.signs || test.reason != "" {
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
			allocations := testing.AllocsPerRun(100, func() { mightAsk(test.pod) })
			if allocations > 0 {
				t.Errorf("%v allocations to find out that there is nothing to do", allocations)
			}
		})
	}
}

// A pod is not tried before all nodes and pods are known, and then it is.
func TestNotSynced(t *testing.T) {
	r := newRig(t, newMoody())
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
	go r.cache.run(ctx)
	mu.Lock()
	ready = true
	mu.Unlock()
	await.That(t, "the pod to be activated", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Equal(r.activated, []string{"p"})
	})
}

// What failed is asked again, later and later, until it goes well.
func TestRetryBacksOff(t *testing.T) {
	registerMetrics()
	plugin := newMoody()
	r := newRig(t, plugin)
	req, err := requestOf(widgets(t, "p", 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go r.cache.retry(ctx, r.clock)
	plugin.set("AddNode", "panic")
	r.addNode(t, "a", "1x1")
	for _, delay := range []time.Duration{minRetry, 2 * minRetry, 4 * minRetry} {
		await.That(t, "it to wait for a retry", r.clock.HasWaiters)
		r.clock.Step(delay - time.Millisecond)
		if !r.clock.HasWaiters() {
			t.Fatalf("retried before %s", delay)
		}
		r.clock.Step(time.Millisecond)
	}
	await.That(t, "it to wait for a retry", r.clock.HasWaiters)
	if n, err := testutil.GetCounterMetricValue(faults.WithLabelValues("widget", "AddNode", "panic")); n < 4 || err != nil {
		t.Errorf("metric: %v faults, %v", n, err)
	}
	plugin.set("AddNode", "")
	r.clock.Step(maxRetry)
	await.That(t, "the node to be usable", func() bool {
		return r.cache.judge("a", r.cache.host.Node("a"), req, r.cache.host.Ask(req.pod, nil)).fits()
	})
}

// Many filters, reservations and news at once, over a plugin that locks nothing.
func TestParallel(t *testing.T) {
	r := newRig(t, newMoody())
	large, small := r.addNode(t, "a", "4x2"), r.addNode(t, "a", "2x2")
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

func TestHints(t *testing.T) {
	r := newRig(t, newMoody())
	registered, err := r.EventsToRegister(r.ctx)
	if err != nil || len(registered) != 5 {
		t.Fatal(registered, err)
	}
	nominated, plain := widgets(t, "n", 1), parsePod(t, "n", "", "", "main cpu=1")
	nominated.Status.NominatedNodeName, plain.Status.NominatedNodeName = "a", "a"
	ended := nominated.DeepCopy()
	ended.Spec.NodeName = "a"
	for gone, want := range map[*v1.Pod]fwk.QueueingHint{nominated: fwk.Queue, plain: fwk.QueueSkip, ended: fwk.QueueSkip, widgets(t, "n", 1): fwk.QueueSkip} {
		got, err := registered[2].QueueingHintFn(r.cache.logger, widgets(t, "p", 1), gone, nil)
		if got != want || err != nil {
			t.Errorf("%s on %q for %q is gone: hint %v, %v; want %v", gone.Name, gone.Spec.NodeName, gone.Status.NominatedNodeName, got, err, want)
		}
	}
	p := widgets(t, "p", 1)
	corrected := p.DeepCopy()
	corrected.Annotations[assignment.Annotation] = "{}"
	misspelt, renamed, removed := parsePod(t, "p", "", "", "main\nannotated KubeDevice/Deviceinfo {}"), parsePod(t, "p", "", "", "main\nannotation {}"), parsePod(t, "p", "", "", "main")
	for _, test := range []struct {
		old, new *v1.Pod
		want     fwk.QueueingHint
	}{{p, corrected, fwk.Queue}, {misspelt, renamed, fwk.Queue}, {misspelt, removed, fwk.Queue}, {misspelt, misspelt, fwk.QueueSkip}, {p, p, fwk.QueueSkip}, {widgets(t, "q", 1), widgets(t, "q", 2), fwk.QueueSkip}, {p, nil, fwk.QueueSkip}} {
		if got, err := registered[0].QueueingHintFn(r.cache.logger, p, test.old, test.new); got != test.want || err != nil {
			t.Errorf("hint %v, %v; want %v", got, err, test.want)
		}
	}
}

// Of whatever scores plugins give, the best node has all points, and the others their share.
func TestScores(t *testing.T) {
	for _, test := range []struct {
		scores []float64
		want   []int64
	}{
		{[]float64{1, 0.5, 0}, []int64{100, 50, 0}},
		{[]float64{0.25, 0.25}, []int64{100, 100}},
		{[]float64{0, 0}, []int64{0, 0}},
		{[]float64{1e300, 1}, []int64{100, 0}},
		{[]float64{1, -1}, []int64{100, 0}},
	} {
		p, c, state := &Plugin{}, &cycle{ask: &host.Ask{}}, framework.NewCycleState()
		state.Write(stateKey, c)
		var list fwk.NodeScoreList
		for i, score := range test.scores {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
			c.scores.Store(node.Name, score)
			points, _ := p.Score(t.Context(), state, nil, frameworkNode(node))
			list = append(list, fwk.NodeScore{Score: points})
		}
		p.NormalizeScore(t.Context(), state, nil, list)
		for i, want := range test.want {
			if list[i].Score != want {
				t.Errorf("%v: %v, want %v", test.scores, list, test.want)
			}
		}
	}
}

// deletingPods deletes a pod as soon as it was looked up, unless the device cache's lock would keep the informer's
// handler waiting.
type deletingPods struct {
	corelisters.PodLister
	corelisters.PodNamespaceLister
	cache   *deviceCache
	deleted bool
}

func (l *deletingPods) List(labels.Selector) ([]*v1.Pod, error) { return nil, nil }

func (l *deletingPods) Pods(namespace string) corelisters.PodNamespaceLister {
	l.PodNamespaceLister = l.PodLister.Pods(namespace)
	return l
}

func (l *deletingPods) Get(name string) (*v1.Pod, error) {
	pod, err := l.PodNamespaceLister.Get(name)
	if err == nil && l.cache.mu.TryLock() {
		l.cache.mu.Unlock()
		l.cache.deletePod(pod)
		l.deleted = true
	}
	return pod, err
}

// A pod that is deleted while its try begins is not entered into the queue after that: nobody would ever
// take it out.
func TestDeletedWhileItsTryBegins(t *testing.T) {
	r := newRig(t, newMoody())
	p := widgets(t, "p", 1)
	r.create(t, p)
	pods := &deletingPods{PodLister: r.cache.pods, cache: r.cache}
	r.cache.pods = pods
	r.PreFilter(r.ctx, framework.NewCycleState(), p, nil)
	if !pods.deleted {
		r.cache.deletePod(p)
	}
	if _, waits := r.cache.queue.Get(p.UID); waits {
		t.Error("it waits for ever")
	}
}
