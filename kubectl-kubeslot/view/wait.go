package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/message"
)

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

// maxNeeds is how many ways to let a pod run are named.
const maxNeeds = 3

// parse takes the scheduler's message apart, once for all pods that have it.
func (v *View) parse(text string) []message.Part { return once(&v.parsed, text, message.Scheduler) }

func (v *View) partWait(pod *corev1.Pod, part message.Part) Wait {
	w := Wait{Reason: part.Reason, Source: FromScheduler, Why: part.Text, NodeCount: part.Nodes, Needs: part.Needs,
		Container: part.Fields["container"]}
	w.Resource, _ = strings.CutPrefix(part.Fields["resource"], "akri.sh/")
	if part.Reason == "InsufficientResource" {
		want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		if why, needs, nowhere := v.nowhere(want, part.Fields["resource"]); nowhere {
			w.Source, w.Why, w.Needs = FromKubeslot, why, needs
		}
	}
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

// restartingWait says how the container has ended.
func restartingWait(s *corev1.ContainerStatus) Wait {
	ended := s.State.Terminated
	why := fmt.Sprintf("it has ended with exit code %d", ended.ExitCode)
	if ended.Signal != 0 {
		why = fmt.Sprintf("it was ended by signal %d", ended.Signal)
	}
	if ended.Reason != "" && ended.Reason != "Error" {
		why += " (" + ended.Reason + ")"
	}
	return Wait{Reason: "Restarting", Source: FromKubelet, Container: s.Name, Why: why + ", and the kubelet starts it again", Needs: "see kubectl logs --previous"}
}

func told(waits []Wait, w Wait) bool {
	return slices.ContainsFunc(waits, func(o Wait) bool {
		return o.Reason == w.Reason && (o.Container == w.Container || o.Container == "" || w.Container == "")
	})
}
