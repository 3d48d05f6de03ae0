package brokers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// By rank of cam-8120fe the nodes a to d are in this order.
func TestRankOfFixture(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	if byRank(instanceName, names); !slices.Equal(names, []string{"b", "a", "c", "d"}) {
		t.Fatalf("the tables of this file say b, a, c, d; it is %q", names)
	}
}

func TestDecide(t *testing.T) {
	type pods = []func(*facts) *corev1.Pod
	const twoSlots = `{"containers":[{"name":"b","resources":{"requests":{"{{PLACEHOLDER}}":"2"}}}]}`
	const onC = `{"nodeSelector":{"name":"c"},"containers":[{"name":"b"}]}`
	const tolerant = `{"tolerations":[{"key":"k","operator":"Exists"}],"containers":[{"name":"b"}]}`
	const template = `{"containers":[{"name":"b","args":["{{property:GONE}}"]}]}`
	elsewhere := brokerPod("a", "Ready")
	for name, tc := range map[string]struct {
		capacity       int32
		spec           string
		nodes          string
		pods           pods
		want           string
		desired, ready int
	}{
		"first by rank":                      {1, onePod, "a b c", nil, "+b", 1, 0},
		"as many as there are slots":         {2, onePod, "a b c d", nil, "+a, +b", 2, 0},
		"as many as there are nodes":         {9, onePod, "a b", nil, "+a, +b", 2, 0},
		"two slots each":                     {5, twoSlots, "a b c d", nil, "+a, +b", 2, 0},
		"more slots than there are":          {1, twoSlots, "a b", nil, "problem BrokerNeedsMoreSlots", 0, 0},
		"not Ready, cordoned, gone, tainted": {9, onePod, "a! b# c% d~", nil, "", 3, 0},
		"does not know of the device":        {9, onePod, "a b?", nil, "+a", 2, 0},
		"runs where it is not known of":      {1, onePod, "a b?", pods{brokerPod("b", "Ready")}, "", 1, 1},
		"tolerates the taint":                {9, tolerant, "a d~", nil, "+a, +d", 2, 0},
		"node selector":                      {9, onC, "a b c", nil, "+c", 1, 0},
		"no node":                            {1, onePod, "", nil, "", 0, 0},
		"all is well":                        {1, onePod, "a b", pods{brokerPod("b", "Ready")}, "", 1, 1},
		"one that runs is not moved":         {1, onePod, "a b c", pods{brokerPod("a", "Ready")}, "", 1, 1},
		"one that starts is not moved":       {1, onePod, "a b c", pods{brokerPod("a", "Bound")}, "", 1, 0},
		"one that waits is not moved":        {1, onePod, "a b c", pods{brokerPod("a", "Pending")}, "", 1, 0},
		"waits for a node that is cordoned":  {1, onePod, "a# b", pods{brokerPod("a", "Pending")}, "-/a, +b", 1, 0},
		"runs on a node that is cordoned":    {1, onePod, "a# b", pods{brokerPod("a", "Ready")}, "", 1, 1},
		"its node is not Ready":              {1, onePod, "a b!", pods{brokerPod("b", "Ready")}, "+a", 1, 0},
		"its node is gone":                   {1, onePod, "a b%", pods{brokerPod("b", "Ready")}, "-b/b, +a", 1, 0},
		"its node is Ready again":            {1, onePod, "a b", pods{brokerPod("a", "Pending"), brokerPod("b", "Ready")}, "-/a", 1, 1},
		"unbound, its node not Ready":        {1, onePod, "a b!", pods{brokerPod("a", "Ready"), brokerPod("b", "Pending")}, "-/b", 1, 1},
		"no longer reaches the device":       {1, onePod, "b", pods{brokerPod("a", "Ready")}, "-a/a, +b", 1, 0},
		"nobody reaches the device":          {1, onePod, "", pods{brokerPod("a", "Ready")}, "-a/a", 0, 0},
		"another's node, not Ready":          {1, onePod, "b", pods{brokerPod("b", "Ready"), elsewhere}, "after 10s", 1, 1},
		"capacity lowered: Ready stays":      {1, onePod, "a b", pods{brokerPod("a", "Ready"), brokerPod("b", "Starting")}, "-b/b", 1, 1},
		"capacity lowered: then by rank":     {1, onePod, "a b d", pods{brokerPod("a", "Ready"), brokerPod("d", "Ready")}, "-d/d", 1, 2},
		"going":                              {1, onePod, "b", pods{brokerPod("b", "Ready", going)}, "", 1, 0},
		"spec taken away":                    {1, "", "a b", pods{brokerPod("b", "Ready")}, "-b/b", 0, 0},
		"spec taken away, pod going":         {1, "", "b", pods{brokerPod("b", "Ready", going)}, "", 0, 0},
		"another spec":                       {2, onePod, "a b", pods{brokerPod("a", "Ready", former), brokerPod("b", "Ready")}, "~a", 2, 2},
		"another spec, not Ready":            {2, onePod, "a b", pods{brokerPod("a", "Starting", former), brokerPod("b", "Ready")}, "-a/a", 2, 1},
		"another spec that is bad":           {1, template, "b", pods{brokerPod("b", "Ready", former)}, "problem UnknownTemplate", 1, 1},
		"other properties":                   {1, onePod, "b", pods{brokerPod("b", "Ready", formerProperties)}, "~b", 1, 1},
		"Akri's":                             {1, onePod, "b", pods{brokerPod("b", "Ready", akris)}, "adopt b", 1, 1},
		"Akri's, surplus":                    {1, onePod, "a b", pods{brokerPod("a", "Pending", akris), brokerPod("b", "Ready", akris)}, "-/a, adopt b", 1, 1},
		"invalid spec":                       {1, `{"containers":[{"name":"b","imagee":"i"}]}`, "b", nil, "problem InvalidBrokerSpec", 1, 0},
		"mistyped spec":                      {1, `{"containers":"b"}`, "b", pods{brokerPod("b", "Ready", former)}, "problem InvalidBrokerSpec", 1, 1},
		"unknown property":                   {1, template, "b", nil, "problem UnknownTemplate", 1, 0},
		// Delays: see TestBackoff.
		"failed just now":                 {1, onePod, "a b", pods{brokerPod("b", "Failed")}, "after 1s", 1, 0},
		"failed, not the first by rank":   {1, onePod, "a b", pods{brokerPod("a", "Failed")}, "after 1s", 1, 0},
		"failed, of an earlier spec":      {1, onePod, "b", pods{brokerPod("b", "Failed", former)}, "-b/b", 1, 0},
		"failed, of other properties":     {1, onePod, "b", pods{brokerPod("b", "Failed", formerProperties)}, "after 1s", 1, 0},
		"failed, its node cordoned":       {1, onePod, "a b#", pods{brokerPod("b", "Failed")}, "-b/b, +a", 1, 0},
		"failed, and no node to go to":    {1, onePod, "b#", pods{brokerPod("b", "Failed")}, "", 1, 0},
		"failed, another runs":            {1, onePod, "a b", pods{brokerPod("a", "Ready"), brokerPod("b", "Failed")}, "-b/b", 1, 1},
		"failed, its node not Ready":      {1, onePod, "a b!", pods{brokerPod("b", "Failed")}, "+a", 1, 0},
		"ended well, but is to run again": {1, onePod, "b", pods{brokerPod("b", "Succeeded", failedBefore(3))}, "after 8s", 1, 0},
		"not admitted": {1, onePod, "b", pods{brokerPod("b", "Failed", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", StartTime: &metav1.Time{Time: start}}
		})}, "after 1s", 1, 0},
		"failed, due": {1, onePod, "b", pods{brokerPod("b", "Failed", func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(start.Add(-2 * time.Second))
		})}, "-b/b", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts(t, configuration(tc.capacity, tc.spec), tc.nodes, tc.pods...)
			if strings.Contains(name, "another's node") {
				f.nodes["a"] = inventory.Node{UID: "a"}
			}
			p := decide(f)
			if want := strings.Count(tc.want, "~"); p.outdated != want && want > 0 {
				t.Errorf("%d outdated, want %d", p.outdated, want)
			}
			if got := p.show(); got != tc.want {
				t.Errorf("plan %q, want %q (problem %v)", got, tc.want, p.problem)
			}
			if p.desired != tc.desired || p.ready != tc.ready {
				t.Errorf("%d of %d ready, want %d of %d", p.ready, p.desired, tc.ready, tc.desired)
			}
			for _, pod := range f.pods { // the cache's
				if pod.DeletionTimestamp == nil && pod.Annotations == nil && !strings.Contains(tc.want, "adopt") && tc.spec != "" {
					t.Errorf("%s was changed", pod.Name)
				}
			}
		})
	}
}

// A node that comes or goes moves no broker that runs, and takes only its share of the
// others.
func TestRankIsStable(t *testing.T) {
	const instances, nodes = 2000, 20
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i)
	}
	first := map[string]int{}
	moved := 0
	for i := range instances {
		instance := fmt.Sprintf("cam-%06x", i)
		all, fewer := slices.Clone(names), slices.Clone(names[:nodes-1])
		byRank(instance, all)
		byRank(instance, fewer)
		first[all[0]]++
		if all[0] != fewer[0] {
			moved++
			if all[0] != names[nodes-1] {
				t.Fatalf("%s goes from %s to %s because another node has come", instance, fewer[0], all[0])
			}
		}
	}
	for _, name := range names {
		if n := first[name]; n < instances/nodes*6/10 || n > instances/nodes*14/10 {
			t.Errorf("%s is first for %d Instances of %d on %d nodes", name, n, instances, nodes)
		}
	}
	if moved == 0 {
		t.Error("a further node takes nothing")
	}
}

// Failing brokers: 1 s, doubled up to 5 minutes; at most 12 pods in 10 minutes,
// whatever the node's clock says; 10 minutes of running are a new start.
func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		before int
		ran    time.Duration
		want   time.Duration
	}{
		{0, time.Second, time.Second}, {1, time.Second, 2 * time.Second}, {5, time.Second, 32 * time.Second}, {8, time.Second, 256 * time.Second},
		{9, time.Second, 5 * time.Minute}, {1000, time.Second, 5 * time.Minute}, {9, 10*time.Minute - 1, 5 * time.Minute}, {9, 10 * time.Minute, time.Second},
	} {
		f := newFacts(t, configuration(1, onePod), "b", brokerPod("b", "Failed", failedBefore(tc.before), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.StartedAt = metav1.NewTime(start.Add(-tc.ran))
		}))
		p := decide(f)
		if p.after != tc.want || len(p.remove) > 0 {
			t.Errorf("%d failures before, ran %s: %q, want after %s", tc.before, tc.ran, p.show(), tc.want)
		}
		if len(p.restarts) != 1 || !strings.Contains(p.restarts[0], "exit code 1") {
			t.Errorf("tells %v", p.restarts)
		}
		if f.memory = p.memory; len(decide(f).restarts) != 0 {
			t.Error("tells it twice")
		}
		f.pods = nil
		if next := decide(f).create[0]; failuresBefore(next) != p.memory.failures["b"] {
			t.Errorf("%d failures before: the next pod counts %d", tc.before, failuresBefore(next))
		}
	}
	off := []time.Duration{0, -time.Hour, time.Hour}
	for _, api := range off {
		for _, clock := range off {
			for _, kind := range []string{"exits at once", "not admitted", "deleted by hand, the count is in memory", "its properties change with each", "its node's clock jumps"} {
				if n := podsIn(t, 10*time.Minute, api, clock, kind); n > 12 || n < 9 {
					t.Errorf("%s, the API server's clock off by %s, the node's by %s: %d pods in 10 minutes, want 9 to 12", kind, api, clock, n)
				}
			}
		}
	}
}

// The back-off is over once a broker has run well, also when it is deleted then, as by a drain of its node.
func TestDeletedBroker(t *testing.T) {
	for _, tc := range []struct {
		ran  time.Duration
		want string // failures that the successor counts
	}{{runsWell - time.Second, "5"}, {runsWell, ""}} {
		runs := func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "b", State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start.Add(-tc.ran))}}}}
		}
		f := newFacts(t, configuration(1, onePod), "b", brokerPod("b", "Ready", going, failedBefore(5), runs))
		f.memory = decide(f).memory
		f.pods = nil
		p := decide(f)
		if len(p.create) != 1 || p.create[0].Annotations[naming.Failures] != tc.want {
			t.Errorf("ran for %s: %q, want a successor that counts the failures %q", tc.ran, p.show(), tc.want)
		}
	}
}

// podsIn plays a failing broker for so long, and counts its pods. The clocks of API server and
// node are off from the controller's.
func podsIn(t *testing.T, long, api, clock time.Duration, kind string) int {
	t.Helper()
	f := newFacts(t, configuration(1, onePod), "b")
	created := 0
	for f.now.Before(start.Add(long)) && created < 1000 {
		p := decide(f)
		f.memory = p.memory
		switch {
		case len(p.create) == 1:
			created++
			pod := p.create[0]
			pod.UID = types.UID(fmt.Sprint(created))
			pod.CreationTimestamp = metav1.NewTime(f.now.Add(api))
			pod.Spec.NodeName, pod.Status.Phase = "b", corev1.PodFailed
			at := metav1.NewTime(f.now.Add(clock))
			pod.Status.StartTime = &at
			if kind == "its node's clock jumps" {
				pod.Status.StartTime = &metav1.Time{Time: at.Add(-time.Hour)}
			}
			if kind == "exits at once" || kind == "its node's clock jumps" {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: *pod.Status.StartTime, FinishedAt: at}}}}
			}
			f.pods = []*corev1.Pod{pod}
			if kind == "its properties change with each" {
				f.properties = map[string]string{"K": fmt.Sprint(created)}
			}
		case len(p.remove) == 1:
			f.pods = nil
		case p.after > 0:
			f.now = f.now.Add(p.after)
		default:
			t.Fatalf("nothing to do at %s", f.now)
		}
	}
	return created
}

// Whatever there is, doing what is decided leads to what is wanted, and then there is
// nothing to do: also when only the first of the writes is done each time.
func TestDecisionsSettle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	states := []string{"Pending", "Bound", "Starting", "Ready", "Failed", "Succeeded"}
	changes := [][]func(*corev1.Pod){nil, nil, {former}, {akris}}
	marks := []string{"", "", "", "!", "#", "~", "%"}
	for range 3000 {
		on := ""
		var pods []func(*facts) *corev1.Pod
		for _, node := range []string{"a", "b", "c", "d"} {
			if random.IntN(3) > 0 {
				on += node + marks[random.IntN(len(marks))] + " "
			}
			if random.IntN(2) == 0 {
				pods = append(pods, brokerPod(node, states[random.IntN(len(states))], changes[random.IntN(len(changes))]...))
			}
		}
		capacity := int32(1 + random.IntN(4))
		f := newFacts(t, configuration(capacity, onePod), on, pods...)
		oneWrite := random.IntN(2) == 0
		settle(t, f, oneWrite)
		live := 0
		for _, pod := range f.pods {
			if node := f.nodes[pod.Labels[naming.TargetNode]]; !isEnded(pod) && node.Ready {
				live++
			}
			if f.nodes[pod.Labels[naming.TargetNode]].Ready && !isEnded(pod) && !f.isCurrent(pod) {
				t.Fatalf("%q, capacity %d: %s stays though it is of another spec", on, capacity, pod.Name)
			}
		}
		eligible := 0
		n := nodesFor(f.spec.pod, f.nodes)
		for _, name := range f.reach {
			if n.eligible(name) {
				eligible++
			}
		}
		if want := min(int(capacity), eligible); live < want || live > int(capacity) {
			t.Fatalf("%q, capacity %d, one write %v: %d brokers, want %d", on, capacity, oneWrite, live, want)
		}
	}
}

// settle does what is decided until there is nothing more to do.
func settle(t *testing.T, f *facts, oneWrite bool) {
	t.Helper()
	for range 60 {
		p := decide(f)
		f.memory = p.memory
		did := false
		may := func() bool { ok := !did || !oneWrite; did = true; return ok }
		for _, r := range slices.Concat(p.remove, p.replace) {
			if may() {
				f.pods = slices.DeleteFunc(f.pods, func(pod *corev1.Pod) bool { return pod.UID == r.pod.UID })
			}
		}
		for _, pod := range p.adopt {
			if may() {
				f.pods[slices.IndexFunc(f.pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })] = pod
			}
		}
		for _, pod := range p.create {
			if may() {
				if slices.ContainsFunc(f.pods, func(p *corev1.Pod) bool { return p.Name == pod.Name }) {
					t.Fatalf("a second %s", pod.Name)
				}
				pod.UID = types.UID(pod.Name + "2")
				pod.CreationTimestamp = metav1.NewTime(f.now)
				pod.Spec.NodeName = pod.Labels[naming.TargetNode]
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				f.pods = append(f.pods, pod)
			}
		}
		if !did && p.after == 0 {
			return
		}
		f.now = f.now.Add(p.after)
	}
	t.Fatal("does not settle: " + decide(f).show())
}
