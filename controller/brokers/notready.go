package brokers

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// NotReady is a broker pod that is not Ready, and why; the zero value is none. Why has no
// counters and no times, and is the same while a container is restarted, or a pod has its
// successor, for the same reason again: each change is a write of the Configuration's status.
type NotReady struct {
	Pod, Why string
	// Failing is set when the pod does more than wait to be scheduled or to start.
	Failing bool
}

const (
	crashLoop     = "CrashLoopBackOff"
	imagePull     = "ImagePullBackOff"
	maxWhyRunes   = 64 // of a reason: runtimes may say what they like
	manyRestarts  = 2  // the kubelet waits longer and longer from then on
	notYetStarted = "starting"
)

// firstNotReady is the broker to tell of: the first, by node, that is failing, else the
// first that is not Ready.
func (f *facts) firstNotReady(on map[string]*corev1.Pod, chosen map[string]bool, ended map[string]string) NotReady {
	var first NotReady
	for _, node := range f.reach {
		pod := on[node]
		one := NotReady{Pod: naming.Pod(f.instance.Name, node, f.shared)}
		switch {
		case pod != nil && pod.DeletionTimestamp == nil && isReady(pod):
			if !f.nodes[node].Ready {
				one.Why = "its node is not Ready"
			}
		case pod != nil && pod.DeletionTimestamp == nil:
			one.Why, one.Failing = f.whyNotReady(pod)
		}
		if !one.Failing && chosen[node] && ended[node] != "" && (pod == nil || !isReady(pod)) {
			one.Why, one.Failing = ended[node], true // its predecessor did
		}
		if one.Why != "" && (first.Why == "" || one.Failing && !first.Failing) {
			first = one
		}
	}
	return first
}

// whyNotReady says in a few words why a pod is not Ready, and whether it is failing.
func (f *facts) whyNotReady(p *corev1.Pod) (why string, failing bool) {
	if isEnded(p) {
		return reasonEnded(p), true
	}
	containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	for i := range containers {
		if why := f.whyFailing(&containers[i]); why != "" {
			return why, true
		}
	}
	if p.Spec.NodeName == "" {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != "" {
				return "it has no node: " + short(c.Reason), false
			}
		}
		return "it has no node", false
	}
	for _, s := range containers {
		switch {
		case s.Ready:
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			return fmt.Sprintf("%s: container %s", short(s.State.Waiting.Reason), s.Name), false
		case s.State.Running != nil:
			return fmt.Sprintf("container %s runs, and is not ready", s.Name), false
		}
	}
	return notYetStarted, false
}

// whyFailing says what keeps a container from running; "" for nothing.
func (f *facts) whyFailing(s *corev1.ContainerStatus) string {
	last := s.State.Terminated
	if last == nil {
		last = s.LastTerminationState.Terminated
	}
	reason := ""
	if s.State.Waiting != nil {
		reason = s.State.Waiting.Reason
	}
	switch {
	case s.Ready, s.State.Running != nil && f.now.Sub(s.State.Running.StartedAt.Time) >= runsWell:
		return ""
	case reason == imagePull, reason == "ErrImagePull": // the kubelet says the one and the other in turn
		return fmt.Sprintf("%s: container %s", imagePull, s.Name)
	case last != nil && (reason == crashLoop || s.RestartCount >= manyRestarts): // also while it runs for a moment
		return crashLoop + ": " + containerEnded(s.Name, last)
	case reason != "" && reason != "ContainerCreating" && reason != "PodInitializing":
		return fmt.Sprintf("%s: container %s", short(reason), s.Name)
	case last != nil:
		return containerEnded(s.Name, last)
	}
	return ""
}

// reasonEnded says why a pod ended: its reason alone, for its message may have numbers.
func reasonEnded(p *corev1.Pod) string {
	if why := whichEnded(p); why != "" {
		return why
	}
	if p.Status.Reason != "" {
		return "it ended: " + short(p.Status.Reason)
	}
	return "its phase is " + string(p.Status.Phase)
}

// whichEnded says with which container a pod ended, and how; "" when none says. Sidecars, which are init
// containers, end when the others have.
func whichEnded(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && (t.ExitCode != 0 || p.Status.Phase == corev1.PodSucceeded) {
			return containerEnded(s.Name, t)
		}
	}
	for _, s := range p.Status.InitContainerStatuses {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return containerEnded(s.Name, t)
		}
	}
	return ""
}

func containerEnded(name string, t *corev1.ContainerStateTerminated) string {
	if t.Reason == "" {
		return fmt.Sprintf("container %s ended with exit code %d", name, t.ExitCode)
	}
	return fmt.Sprintf("container %s ended with exit code %d (%s)", name, t.ExitCode, short(t.Reason))
}

func short(reason string) string { return naming.CutText(reason, maxWhyRunes) }
