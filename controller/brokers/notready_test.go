package brokers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/naming"
)

func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "b", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "secret"}}}}
	}
}

// restarted has its container have ended with exit code 3 before.
func restarted(times int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if len(p.Status.ContainerStatuses) == 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "b", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start.Add(-time.Second))}}}}
		}
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount, s.LastTerminationState.Terminated = times, &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", Message: "secret", FinishedAt: metav1.NewTime(start)}
	}
}

func unscheduled(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "0/17 nodes are available"}}
	}
}

func runsSince(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(start.Add(-d))
	}
}

func TestWhyNotReady(t *testing.T) {
	type pods []func(*facts) *corev1.Pod
	const crashes = "CrashLoopBackOff: container b ended with exit code 3 (Error)"
	for name, tc := range map[string]struct {
		nodes string
		pods  pods
		want  string // "NODE: why", ! when it is failing
	}{
		"ready":                         {"a", pods{brokerPod("a", "Ready")}, ""},
		"no pod yet":                    {"a", nil, ""},
		"going":                         {"a", pods{brokerPod("a", "Starting", going)}, ""},
		"just bound":                    {"a", pods{brokerPod("a", "Bound")}, "a: starting"},
		"its image is pulled":           {"a", pods{brokerPod("a", "Bound", waits("ContainerCreating"))}, "a: ContainerCreating: container b"},
		"no image":                      {"a", pods{brokerPod("a", "Bound", waits("ImagePullBackOff"))}, "a: ImagePullBackOff: container b!"},
		"no image, the kubelet tries":   {"a", pods{brokerPod("a", "Bound", waits("ErrImagePull"))}, "a: ImagePullBackOff: container b!"},
		"no such image name":            {"a", pods{brokerPod("a", "Bound", waits("InvalidImageName"))}, "a: InvalidImageName: container b!"},
		"a reason without end":          {"a", pods{brokerPod("a", "Bound", waits(strings.Repeat("é", 1000)))}, "a: " + strings.Repeat("é", maxWhyRunes-1) + "…: container b!"},
		"crashed once":                  {"a", pods{brokerPod("a", "Starting", restarted(1))}, "a: container b ended with exit code 3 (Error)!"},
		"crashed once, waits":           {"a", pods{brokerPod("a", "Starting", waits("CrashLoopBackOff"), restarted(1))}, "a: " + crashes + "!"},
		"crash loop, waits":             {"a", pods{brokerPod("a", "Starting", waits("CrashLoopBackOff"), restarted(7))}, "a: " + crashes + "!"},
		"crash loop, runs for a moment": {"a", pods{brokerPod("a", "Starting", restarted(8))}, "a: " + crashes + "!"},
		"crash loop, cannot be started": {"a", pods{brokerPod("a", "Starting", waits("RunContainerError"), restarted(8))}, "a: " + crashes + "!"},
		"restarted long ago":            {"a", pods{brokerPod("a", "Starting", restarted(8), runsSince(time.Hour))}, "a: container b runs, and is not ready"},
		"ended, and is not restarted":   {"a", pods{brokerPod("a", "Failed")}, "a: container b ended with exit code 1 (Error)!"},
		"evicted": {"a", pods{brokerPod("a", "Failed", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "9Ki"}
		})}, "a: it ended: Evicted!"},
		"no node, says the scheduler":     {"a", pods{brokerPod("a", "Pending", unscheduled("Unschedulable"))}, "a: it has no node: Unschedulable"},
		"no node":                         {"a", pods{brokerPod("a", "Pending")}, "a: it has no node"},
		"its node is not Ready":           {"a!", pods{brokerPod("a", "Ready")}, "a: its node is not Ready"},
		"the first of several":            {"a b c", pods{brokerPod("c", "Pending"), brokerPod("b", "Pending"), brokerPod("a", "Ready")}, "b: it has no node"},
		"of several the failing one":      {"a b c", pods{brokerPod("c", "Bound", waits("ErrImagePull")), brokerPod("a", "Pending"), brokerPod("b", "Starting", restarted(3))}, "b: " + crashes + "!"},
		"of several failing ones by node": {"a b", pods{brokerPod("b", "Starting", restarted(3)), brokerPod("a", "Bound", waits("ErrImagePull"))}, "a: ImagePullBackOff: container b!"},
		"its container fails, not another": {"a", pods{brokerPod("a", "Starting", restarted(3), func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", Ready: true}}
		})}, "a: " + crashes + "!"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts(t, configuration(3, onePod), tc.nodes, tc.pods...)
			want, got := NotReady{}, decide(f).notReady
			if node, why, ok := strings.Cut(tc.want, ": "); ok {
				want = NotReady{Pod: naming.Pod(instanceName, node, true), Why: strings.TrimSuffix(why, "!"), Failing: strings.HasSuffix(why, "!")}
			}
			if got.Why == "" {
				got.Pod = ""
			}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// A pod ends with the container that failed, not with the sidecar that was ended then; with an init container, if
// that failed.
func TestWhichContainerEnded(t *testing.T) {
	ended := func(name string, code int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}}}
	}
	for want, status := range map[string]corev1.PodStatus{
		"container b ended with exit code 1 (Error)": {InitContainerStatuses: ended("sidecar", 137),
			ContainerStatuses: ended("b", 1)},
		"container i ended with exit code 2 (Error)": {InitContainerStatuses: ended("i", 2)},
	} {
		status.Phase = corev1.PodFailed
		p := &corev1.Pod{Status: status}
		if event, state := whyEnded(p), reasonEnded(p); event != want || state != want {
			t.Errorf("the Event says %q, the status %q, want %q", event, state, want)
		}
	}
}

// What is said of a broker that ends again and again, and of the Configuration with it,
// stays the same while its successors come.
func TestWhyNotReadyIsSteady(t *testing.T) {
	r := newRig(t, theInstance())
	r.inv.SetConfiguration(configuration(1, onePod))
	r.found("a")
	var said []NotReady
	for r.clock.Since(start) < 10*time.Minute {
		result, err := r.reconcile()
		if err != nil {
			t.Fatal(err)
		}
		if now := r.sum().NotReady; len(said) == 0 || said[len(said)-1] != now {
			said = append(said, now)
		}
		if look := int(r.clock.Since(start) / time.Second); look%3 == 0 {
			r.run(corev1.PodFailed)
		}
		r.clock.SetTime(r.clock.Now().Add(max(time.Second, min(result.RequeueAfter, 3*time.Second))))
	}
	if len(said) > 3 || said[len(said)-1].Why != "its phase is Failed" || !said[len(said)-1].Failing {
		t.Errorf("in turn %+v", said)
	}
}

// Of several Instances the first that has a failing broker is told of, else the first
// that has one which is not Ready.
func TestSumOfNotReady(t *testing.T) {
	r := results{of: map[types.NamespacedName]map[string]result{}, changed: func(types.NamespacedName) {}}
	set := func(instance, why string, failing bool) {
		r.set(types.NamespacedName{Namespace: "default", Name: instance}, result{notReady: NotReady{Pod: "of-" + instance, Why: why, Failing: failing}})
	}
	want := func(pod string) {
		t.Helper()
		for range 20 { // maps have no order
			if got := r.sum(theConfiguration).NotReady.Pod; got != pod {
				t.Fatalf("%q, want %q", got, pod)
			}
		}
	}
	set("cam-000001", "", false)
	want("")
	set("cam-000003", "w", false)
	set("cam-000002", "w", false)
	want("of-cam-000002")
	set("cam-000005", "w", true)
	set("cam-000004", "w", true)
	want("of-cam-000004")
}
