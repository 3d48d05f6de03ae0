package view

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/message"
)

// Pod says what devices a pod has, or why it waits.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Node      string    `json:"node,omitempty"`
	Phase     string    `json:"phase"`
	State     PodState  `json:"state"`
	Since     time.Time `json:"since,omitzero"` // of the state
	Requests  []Asked   `json:"requests,omitempty"`
	Slots     []Slot    `json:"slots,omitempty"`
	// Waits are the conditions that keep it from running; all of them have to be met,
	// on one node.
	Waits []Wait `json:"waits,omitempty"`
	// Needs are what would let it run, the least first; each of them is enough.
	Needs []string `json:"needs,omitempty"`
	// Says is what the scheduler or the kubelet says, in its own words.
	Says   []string          `json:"says,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// PodState is where a pod is on its way.
type PodState string

const (
	// Gated: it has scheduling gates.
	Gated PodState = "Gated"
	// Pending: it has no node.
	Pending PodState = "Pending"
	// Preempting: other pods are made to go for it.
	Preempting PodState = "Preempting"
	// Starting: it has a node, and not all of its containers have run.
	Starting PodState = "Starting"
	// Running: all its containers have started.
	Running PodState = "Running"
	// Succeeded, Failed: it has ended.
	Succeeded PodState = "Succeeded"
	Failed    PodState = "Failed"
	// Terminating: it is being deleted.
	Terminating PodState = "Terminating"
)

// Asked is what a container asks for.
type Asked struct {
	Container string `json:"container"`
	Resource  string `json:"resource"` // akri.sh/...
	Count     int64  `json:"count"`
}

// Wait is a condition that keeps a pod from running.
type Wait struct {
	// Reason is a word in CamelCase that stays when texts change.
	Reason string `json:"reason"`
	// Source is who found it: Kubeslot (this program, from the cluster's objects),
	// Scheduler or Kubelet (which said so).
	Source    string `json:"source"`
	Container string `json:"container,omitempty"`
	Resource  string `json:"resource,omitempty"` // a Configuration's or an Instance's name
	Count     int64  `json:"count,omitempty"`
	Why       string `json:"why"`
	// Nodes are where it is so, all nodes without any. NodeCount is their number where
	// the names are not known.
	Nodes     []string `json:"nodes,omitempty"`
	NodeCount int      `json:"nodeCount,omitempty"`
	// Needs is what would meet it.
	Needs string `json:"needs,omitempty"`
	// Holders have what is asked for: as soon as enough of them end, it is met.
	Holders []Slot `json:"holders,omitempty"`
}

// Sources of a Wait.
const (
	FromKubeslot  = "Kubeslot"
	FromScheduler = "Scheduler"
	FromKubelet   = "Kubelet"
)

// Pod returns what there is to say of the pod; false when it is not among the objects.
// The events, if any, are those of the pod.
func (v *View) Pod(namespace, name string, events ...corev1.Event) (Pod, bool) {
	at := v.podAt(namespace, name)
	if at < 0 {
		return Pod{}, false
	}
	pod := &v.objects.Pods[at]
	p := v.podRow(pod, v.slots().ofPod[string(pod.UID)])
	events = slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool {
		return e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID // of an earlier pod of its name
	})
	switch p.State {
	case Gated, Pending, Preempting:
		v.unscheduled(pod, &p)
	case Starting, Running, Failed:
		v.bound(pod, &p, events)
	}
	p.Says = v.says(pod, events)
	return p, true
}

// HasPod reports whether Pod knows the pod, at less cost.
func (v *View) HasPod(namespace, name string) bool { return v.podAt(namespace, name) >= 0 }

// podAt is where the pod is among the objects; negative when it is not there.
func (v *View) podAt(namespace, name string) int {
	for i := range v.objects.Pods {
		if p := &v.objects.Pods[i]; p.Name == name && p.Namespace == namespace {
			return i
		}
	}
	return -1
}

// Pods returns a row for each pod that asks for devices or has some, by namespace and
// name. Its waits are what the scheduler or the kubelet said last.
func (v *View) Pods() []Pod {
	held := v.slots().ofPod
	var rows []Pod
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		mine := held[string(pod.UID)]
		if len(mine) == 0 && (len(requests(pod)) == 0 || ended(pod) && pod.Status.Phase != corev1.PodFailed) {
			continue
		}
		p := v.podRow(pod, mine)
		p.Waits = v.said(pod)
		rows = append(rows, p)
	}
	slices.SortFunc(rows, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// podRow is the pod with the slots that it has.
func (v *View) podRow(pod *corev1.Pod, slots []Slot) Pod {
	p := Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase), Slots: slots, Labels: pod.Labels}
	p.State, p.Since = stateOf(pod)
	for _, r := range requests(pod) {
		p.Requests = append(p.Requests, Asked{r.container, "akri.sh/" + r.resource, r.count})
	}
	return p
}

func stateOf(pod *corev1.Pod) (PodState, time.Time) {
	created := pod.CreationTimestamp.Time
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return Succeeded, time.Time{}
	case pod.Status.Phase == corev1.PodFailed:
		return Failed, time.Time{}
	case pod.DeletionTimestamp != nil:
		return Terminating, pod.DeletionTimestamp.Time
	case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) > 0:
		return Gated, created
	case pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "":
		return Preempting, created
	case pod.Spec.NodeName == "":
		return Pending, created
	}
	var latest time.Time
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.State.Waiting != nil {
				return Starting, scheduled(pod)
			}
			if r := s.State.Running; r != nil && r.StartedAt.After(latest) {
				latest = r.StartedAt.Time
			}
		}
	}
	if len(restarting(pod)) > 0 {
		return Starting, scheduled(pod)
	}
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) < len(pod.Spec.Containers) {
		return Starting, scheduled(pod)
	}
	return Running, latest
}

// said are the reasons that the scheduler or the kubelet gave last.
func (v *View) said(pod *corev1.Pod) []Wait {
	var all []Wait
	if pod.Spec.NodeName == "" {
		if len(pod.Spec.SchedulingGates) > 0 {
			return []Wait{gatedWait(pod)}
		}
		for _, part := range v.parse(schedulerSays(pod)) {
			if part.About != message.Preemption {
				all = append(all, partWait(part))
			}
		}
		return all
	}
	for _, s := range waiting(pod) {
		if s.State.Waiting.Message != "" {
			all = append(all, kubeletWait(s.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
		}
	}
	for _, s := range restarting(pod) {
		all = append(all, restartingWait(&s))
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
		all = append(all, kubeletWait("", pod.Status.Reason, pod.Status.Message))
	}
	return all
}

// parse takes the scheduler's message apart, once for all pods that have it.
func (v *View) parse(text string) []message.Part {
	if parts, known := v.parsed.Load(text); known {
		return parts.([]message.Part)
	}
	parts := message.Scheduler(text)
	v.parsed.Store(text, parts)
	return parts
}

// schedulerSays is the message of a pod without a node.
func schedulerSays(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// restarting are the containers that have ended and that the kubelet will start again. It
// says so of them, as waiting, only after a while.
func restarting(pod *corev1.Pod) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, s := range pod.Status.ContainerStatuses {
		if ended := s.State.Terminated; ended != nil && restarts(pod, s.Name, ended.ExitCode) {
			all = append(all, s)
		}
	}
	return all
}

// restarts reports whether a container that has ended with the exit code is started again.
// It does not know the container's restartPolicyRules.
func restarts(pod *corev1.Pod, container string, exitCode int32) bool {
	policy := string(pod.Spec.RestartPolicy)
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == container && c.RestartPolicy != nil {
			policy = string(*c.RestartPolicy)
		}
	}
	return policy != string(corev1.RestartPolicyNever) && (policy != string(corev1.RestartPolicyOnFailure) || exitCode != 0)
}

// waiting are the containers that the kubelet has not started.
func waiting(pod *corev1.Pod) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.State.Waiting != nil {
				all = append(all, s)
			}
		}
	}
	return all
}

// says collects what the scheduler says of a pod without a node, the kubelet of
// containers that do not start, and warnings in events.
func (v *View) says(pod *corev1.Pod, events []corev1.Event) []string {
	var all []string
	add := func(format string, args ...any) {
		if text := v.named(fmt.Sprintf(format, args...)); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
			add("the scheduler: %s", c.Message)
		}
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			add("it is made to go: %s: %s", c.Reason, c.Message)
		}
	}
	for _, s := range waiting(pod) {
		if s.State.Waiting.Message != "" {
			add("the kubelet, of container %s: %s: %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Message != "" {
		add("%s: %s", pod.Status.Reason, pod.Status.Message)
	}
	state, _ := stateOf(pod)
	runs := state == Running // then what is long past does not matter
	for _, e := range events {
		if e.Type == corev1.EventTypeWarning && !besides[e.Reason] && (!runs || ourEvents[e.Reason]) && !strings.Contains(strings.Join(all, "\n"), e.Message) {
			add("%s: %s: %s", eventSource(&e), e.Reason, e.Message)
		}
	}
	return all
}

// besides are the reasons of warnings that keep no pod from running, or that its conditions
// and containers say better.
var besides = map[string]bool{"FailedScheduling": true, "MissingClusterDNS": true, "DNSConfigForming": true, "BackOff": true}

// ourEvents are the reasons of Kubeslot's own warnings about pods that run.
var ourEvents = map[string]bool{"SlotLost": true, "StartedWithoutDevices": true, "DeviceGone": true, "DeviceChanged": true, "SlotAssignedTwice": true}

func eventSource(e *corev1.Event) string {
	switch {
	case e.ReportingController != "":
		return e.ReportingController
	case e.Source.Component != "":
		return e.Source.Component
	}
	return "an event"
}

// preemptor is how kube-scheduler names a pod in its events.
var preemptor = regexp.MustCompile(`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)

// named puts the names of pods beside their UIDs.
func (v *View) named(text string) string {
	return preemptor.ReplaceAllStringFunc(text, func(uid string) string {
		if pod := v.pods[uid]; pod != nil {
			return pod.Namespace + "/" + pod.Name
		}
		return uid
	})
}

func partWait(part message.Part) Wait {
	w := Wait{Reason: part.Reason, Source: FromScheduler, Why: part.Text, NodeCount: part.Nodes, Needs: part.Needs,
		Container: part.Fields["container"]}
	w.Resource, _ = strings.CutPrefix(part.Fields["resource"], "akri.sh/")
	return w
}

func kubeletWait(container, reason, text string) Wait {
	m := message.Kubelet(reason, text)
	w := Wait{Reason: m.Reason, Source: FromKubelet, Container: container, Why: m.Text, Needs: m.Needs}
	w.Resource, _ = strings.CutPrefix(m.Fields["resource"], "akri.sh/")
	return w
}

func gatedWait(pod *corev1.Pod) Wait {
	var gates []string
	for _, g := range pod.Spec.SchedulingGates {
		gates = append(gates, g.Name)
	}
	return Wait{Reason: "SchedulingGated", Source: FromKubeslot,
		Why:   "it has scheduling gates (" + strings.Join(gates, ", ") + "): no scheduler looks at it until they are removed",
		Needs: "whoever set the gates has to remove them from spec.schedulingGates"}
}
