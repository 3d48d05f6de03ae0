package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Pod says what devices a pod has, or why it waits.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	Phase     string `json:"phase"`
	Slots     []Slot `json:"slots,omitempty"`
	Waits     []Wait `json:"waits,omitempty"`
	// Says is what the scheduler or the kubelet says, in its own words.
	Says []string `json:"says,omitempty"`
}

// Wait is a request that keeps a pod from running.
type Wait struct {
	Container string `json:"container"`
	Resource  string `json:"resource"`
	Count     int64  `json:"count"`
	Why       string `json:"why"`
	// Holders are who has what is asked for: as soon as enough of them end, the pod runs.
	Holders []Slot `json:"holders,omitempty"`
}

// Pod returns what there is to say of the pod; false when it is not among the objects.
func (v *View) Pod(namespace, name string) (Pod, bool) {
	at := slices.IndexFunc(v.objects.Pods, func(p corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if at < 0 {
		return Pod{}, false
	}
	pod := &v.objects.Pods[at]
	p := Pod{Namespace: namespace, Name: name, Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase), Says: says(pod)}
	if err := v.broken[pod]; err != nil {
		p.Says = append(p.Says, "its assignment cannot be read: "+err.Error())
	}
	for _, s := range v.Slots() {
		if s.Namespace == namespace && s.Pod == name {
			p.Slots = append(p.Slots, s)
		}
	}
	if pod.Spec.NodeName == "" && !ended(pod) {
		for _, r := range requests(pod) {
			if w := v.wait(r); w.Why != "" {
				p.Waits = append(p.Waits, w)
			}
		}
	}
	return p, true
}

// says collects what the scheduler says of a pod without a node, and the kubelet of
// containers that do not start.
func says(pod *corev1.Pod) []string {
	var all []string
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
			all = append(all, "the scheduler: "+c.Message)
		}
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		all = append(all, "it has scheduling gates: no scheduler looks at it until they are removed")
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if w := s.State.Waiting; w != nil && w.Message != "" {
				all = append(all, fmt.Sprintf("the kubelet, of container %s: %s: %s", s.Name, w.Reason, w.Message))
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Message != "" {
		all = append(all, pod.Status.Reason+": "+pod.Status.Message)
	}
	return all
}

// wait says why the request cannot be served now; an empty Why when it can, as far as
// slots go.
func (v *View) wait(r request) Wait {
	w := Wait{Container: r.container, Resource: r.resource, Count: r.count}
	var candidates []*akriv0.Instance
	distinct := true // each unit of another Instance
	switch c, in := v.configurations[r.resource], v.instances[r.resource]; {
	case c != nil:
		candidates, distinct = v.of[c.Name], c.Spec.Unique() != ""
		if len(candidates) == 0 {
			w.Why = "no node sees a device of this Configuration" + because(v.problems(c))
			return w
		}
	case in != nil:
		candidates, distinct = []*akriv0.Instance{in}, false
	default:
		w.Why = "there is no Configuration or Instance of this name that you can see"
		return w
	}
	free := map[string]int64{} // by node: slots, or Instances with one
	var all, total int64
	for _, in := range candidates {
		var open int64
		for _, s := range v.slotsOf(in) {
			total++
			if s.State == Free {
				open++
			} else {
				w.Holders = append(w.Holders, s)
			}
		}
		if distinct {
			open = min(open, 1)
		}
		all += open
		for _, node := range v.nodes(in) {
			free[node] += open
		}
	}
	what := "free slot(s)"
	if distinct {
		what, total = "device(s) with a free slot", int64(len(candidates))
	}
	var best string
	for node, n := range free {
		if best == "" || n > free[best] || n == free[best] && node < best {
			best = node
		}
	}
	switch {
	case total < r.count:
		w.Why = fmt.Sprintf("it asks for %d, and there are only %d in all", r.count, total)
	case all < r.count:
		w.Why = fmt.Sprintf("it asks for %d, and there are only %d %s", r.count, all, what)
	case best == "":
		w.Why = "no node reaches the device"
		w.Holders = nil
	case free[best] < r.count:
		w.Why = fmt.Sprintf("it asks for %d, and no node reaches more than %d %s (%s)", r.count, free[best], what, best)
	default:
		w.Holders = nil // enough are free: something else is in the way
	}
	return w
}

func because(problems []string) string {
	if len(problems) == 0 {
		return ""
	}
	return ": " + strings.Join(problems, "; ")
}
