package configurationresources

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// waitingFor returns what the metric says of the waiting pods.
func (r *rig) waitingFor() string {
	r.Helper()
	r.cache.Lead()
	return waitingIn(r.T, r.cache)
}

func waitingIn(t *testing.T, slots *slotcache.Cache) string {
	t.Helper()
	var lines []string
	gauges(t, slots, "kubeslot_scheduler_waiting_pods", func(configuration, reason string, n float64) {
		lines = append(lines, fmt.Sprintf("%s %s %v", configuration, reason, n))
	})
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// gauges visits what the slot cache reports of itself.
func gauges(t *testing.T, slots *slotcache.Cache, name string, visit func(configuration, reason string, value float64)) {
	t.Helper()
	registry, c := metrics.NewKubeRegistry(), &slotcache.Collector{}
	c.Report(slots)
	registry.CustomMustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				visit(m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetGauge().GetValue())
			}
		}
	}
}

// What the last try met says why a pod waits; where nodes differ, what is nearest to running.
func TestWhyPodsWait(t *testing.T) {
	node := func(name string) fwk.NodeInfo {
		n := advertising(name, "100")
		n.Status.Allocatable["akri.sh/spare"] = resource.MustParse("1")
		return infoOf(n)
	}
	a, b, bare := node("node-a"), node("node-b"), infoOf(advertising("node-a", ""))
	cam := func() *v1.Pod { return pod("p", "1") }
	also := func(p *v1.Pod, name v1.ResourceName) *v1.Pod {
		p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
		return p
	}
	for name, test := range map[string]struct {
		pod   func() *v1.Pod
		nodes []fwk.NodeInfo
		want  string
	}{
		"not tried":         {want: "cam NotTried 1"},
		"held":              {pod: cam, nodes: []fwk.NodeInfo{a, b}, want: "cam Held 1"},
		"held there":        {pod: cam, nodes: []fwk.NodeInfo{b}, want: "cam Held 1"},
		"slots but no room": {pod: func() *v1.Pod { return asks("p", "spare", "1") }, nodes: []fwk.NodeInfo{a, b}, want: "spare Other 1"},
		"no node asked":     {pod: cam, want: "cam Other 1"},
		"not advertised":    {pod: func() *v1.Pod { return asks("p", "spare", "1") }, nodes: []fwk.NodeInfo{bare, b}, want: "spare NotAdvertised 1"},
		"too few":           {pod: func() *v1.Pod { return pod("p", "3") }, nodes: []fwk.NodeInfo{a, b}, want: "cam TooFew 1"},
		"an Instance":       {pod: func() *v1.Pod { return asks("p", "cam-000001", "1") }, nodes: []fwk.NodeInfo{a}, want: "cam Held 1"},
		"two Instances": {
			pod: func() *v1.Pod { return also(asks("p", "cam-000001", "1"), "akri.sh/cam-000002") }, nodes: []fwk.NodeInfo{a}, want: "cam Held 1"},
		"two Configurations": {
			pod: func() *v1.Pod { return also(cam(), "akri.sh/spare") }, nodes: []fwk.NodeInfo{a}, want: "cam Held 1; spare Held 1"},
		"unknown":  {pod: func() *v1.Pod { return asks("p", "made-up", "1") }, nodes: []fwk.NodeInfo{a}, want: "<unknown> UnknownResource 1"},
		"no node":  {pod: func() *v1.Pod { return asks("p", "nowhere", "1") }, nodes: []fwk.NodeInfo{a}, want: "nowhere NoNode 1"},
		"bad note": {pod: func() *v1.Pod { p := cam(); p.Annotations[assignment.Annotation] = "{"; return p }, want: "cam InvalidRequest 1"},
		"gated": {pod: func() *v1.Pod {
			p := cam()
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "later"}}
			return p
		}, nodes: []fwk.NodeInfo{a}, want: "cam Gated 1"},
		"of another scheduler": {pod: func() *v1.Pod { p := cam(); p.Spec.SchedulerName = "theirs"; return p }, nodes: []fwk.NodeInfo{a}, want: "cam OtherScheduler 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, name := range []string{"spare", "nowhere"} {
				c := cameras(1)
				c.Name = name
				r.cache.SetConfiguration(c)
			}
			r.hold("cam-000001", pod("holder-a", "1"), "node-a")
			r.hold("cam-000002", pod("holder-b", "1"), "node-b")
			device(r.cache, "spare-000003", nil, "node-a")
			if test.pod == nil {
				r.cache.SetPod(pod("p", "1"))
			} else {
				r.tried(test.pod(), test.nodes...)
			}
			if got := r.waitingFor(); got != test.want {
				t.Errorf("waiting: %s, want %s", got, test.want)
			}
		})
	}
}

// What a pod's author makes up becomes no time series.
func TestUnknownResourcesAreOneSeries(t *testing.T) {
	r := newRig(t)
	for i := range 200 {
		r.cache.SetPod(asks(fmt.Sprint("p", i), fmt.Sprint("made-up-", i), "1"))
	}
	if got := r.waitingFor(); got != "<unknown> NotTried 200" {
		t.Errorf("waiting: %s", got)
	}
}

// A pod's time counts for what it waited for, from its try until the next one.
func TestWaitingTimeByReason(t *testing.T) {
	slotcache.RegisterMetrics()
	// Schedulers of other tests may observe some at any time.
	observed := func(reason string) float64 {
		sum, _ := metric(t, "kubeslot_scheduler_pod_waiting_seconds", reason)
		return sum
	}
	before := map[string]float64{}
	for _, name := range waitreason.Names {
		before[name] = observed(name)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		holder := r.hold("cam-000001", pod("holder", "1"), "node-a")
		p := pod("p", "1")
		p.CreationTimestamp = metav1.Now()
		r.cache.Lead()
		r.cache.SetPod(p)
		time.Sleep(2 * time.Second)
		r.tried(p, nodeInfo("node-a")) // held
		time.Sleep(30 * time.Second)
		r.tried(p) // no node has been left to ask
		time.Sleep(5 * time.Second)
		r.tried(p, nodeInfo("node-a"))
		time.Sleep(10 * time.Second)
		if got, want := oldest(t, r, "Held"), 47*time.Second; got != want {
			t.Errorf("the oldest pod that waits for what others hold is %s old, want %s", got, want)
		}
		r.cache.DeletePod(holder)
		r.schedule(p, "node-a")
		w, _ := r.cache.Queue.Get("p-uid")
		spent := map[string]time.Duration{}
		w.Spent(func(reason string, d time.Duration) { spent[reason] += d })
		if want := map[string]time.Duration{"NotTried": 2 * time.Second, "Held": 40 * time.Second, "Other": 5 * time.Second}; !maps.Equal(spent, want) {
			t.Errorf("waiting times %v, want %v", spent, want)
		}
		r.cache.SetPod(bound(p, "node-a", cam1))
		if got := r.waitingFor(); got != "" {
			t.Errorf("still waiting: %s", got)
		}
		// Nobody tried this one here: it is another scheduler's, or the leader's.
		r.cache.SetPod(pod("q", "1"))
		time.Sleep(time.Hour)
		r.cache.SetPod(bound(pod("q", "1"), "node-a", nil))
		if n := r.waiting(); n > 0 {
			t.Errorf("%d pods are remembered for ever", n)
		}
	})
	for reason, want := range map[string]float64{"NotTried": 2, "Held": 40, "Other": 5} {
		if got := observed(reason) - before[reason]; got < want-1e-6 || got > want+1000 { // q was not tried: its hour does not count
			t.Errorf("%v s of waiting for %s were observed, want %v", got, reason, want)
		}
	}
}

// oldest is the age of the oldest pod that waits for the reason.
func oldest(t *testing.T, r *rig, reason string) (age time.Duration) {
	t.Helper()
	gauges(t, r.cache, "kubeslot_scheduler_oldest_waiting_pod_seconds", func(_, of string, seconds float64) {
		if of == reason {
			age = time.Duration(seconds * float64(time.Second))
		}
	})
	return age
}

// There is a line for each pod that has to go at the default verbosity, unless the scheduler does not
// lead, and at verbosity 2 one for each slot that is given back: with who, which and for whom.
func TestLogOfSlots(t *testing.T) {
	const preempted = "Preempting a pod for its slots pod default/victim podUID victim-uid slots [cam-000001-0] " +
		"preemptor default/vip node node-b\n"
	const released = "Released slots node node-b pod default/victim podUID victim-uid slots [cam-000001-0]\n" +
		"Released slots of a pod that was not bound pod default/assumed podUID assumed-uid slots [cam-000002-0]\n"
	for _, test := range []struct {
		leads     bool
		verbosity int
		want      string
	}{
		{true, 0, preempted},
		{true, 2, preempted + released},
		{false, 0, ""},
		{false, 2, released},
	} {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true),
			ktesting.Verbosity(test.verbosity)))
		r := newLoggingRig(t, logger)
		if test.leads {
			r.cache.Lead()
		}
		victim := r.hold("cam-000001", pod("victim", "1"), "node-a", "node-b")
		r.cache.SetPod(nominatedTo(important("vip"), "node-b"))
		r.cache.SetPod(ending(victim))
		r.cache.DeletePod(victim)
		assumed := pod("assumed", "1")
		device(r.cache, "cam-000002", nil, "node-b")
		_, shortfall, err := r.cache.Assume(must(slotrequest.Of(assumed)), "node-b", ledger.Spread, nil)
		if shortfall != nil || err != nil {
			t.Fatal(shortfall, err)
		}
		r.cache.Forget(assumed)
		underlier, _ := logger.GetSink().(ktesting.Underlier)
		log := ""
		for _, entry := range underlier.GetBuffer().Data() {
			if strings.Contains(entry.Message, "slots") {
				log += fmt.Sprintln(append(append([]any{entry.Message}, entry.WithKVList...), entry.ParameterKVList...)...)
			}
		}
		if log != test.want {
			t.Errorf("leading %t, verbosity %d: the log is\n%s\nwant\n%s", test.leads, test.verbosity, log, test.want)
		}
	}
}
