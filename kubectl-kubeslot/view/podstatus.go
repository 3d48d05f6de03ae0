package view

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// scheduling is the pod's condition PodScheduled; nil when no scheduler has tried it.
func scheduling(pod *corev1.Pod) *corev1.PodCondition {
	all := pod.Status.Conditions
	if i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }); i >= 0 {
		return &all[i]
	}
	return nil
}

func scheduled(pod *corev1.Pod) time.Time {
	if c := scheduling(pod); c != nil {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// schedulerSays is the message of a pod without a node.
func schedulerSays(pod *corev1.Pod) string {
	if c := scheduling(pod); c != nil && c.Status != corev1.ConditionTrue {
		return c.Message
	}
	return ""
}

// containers are the pod's, init containers first.
func containers(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return eachOf(pod.Spec.InitContainers, pod.Spec.Containers)
}

// statuses are what the kubelet says of the pod's containers, of init containers first.
func statuses(pod *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return eachOf(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func eachOf[T any](lists ...[]T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, list := range lists {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// waiting are the containers that the kubelet has not started.
func waiting(pod *corev1.Pod) []*corev1.ContainerStatus {
	var all []*corev1.ContainerStatus
	for s := range statuses(pod) {
		if s.State.Waiting != nil {
			all = append(all, s)
		}
	}
	return all
}

// restarting are the containers that have ended and that the kubelet will start again. It
// says so of them, as waiting, only after a while.
func restarting(pod *corev1.Pod) []*corev1.ContainerStatus {
	var all []*corev1.ContainerStatus
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
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

// started reports whether the container runs or has run to its end.
func started(pod *corev1.Pod, container string) bool {
	s := containerState(pod, container)
	return s.Waiting == nil && (s.Running != nil || s.Terminated != nil)
}

// running reports whether the container runs.
func running(pod *corev1.Pod, container string) bool {
	return containerState(pod, container).Running != nil
}

// containerState is what the kubelet says of the container; zero when it says nothing.
func containerState(pod *corev1.Pod, container string) corev1.ContainerState {
	for s := range statuses(pod) {
		if s.Name == container {
			return s.State
		}
	}
	return corev1.ContainerState{}
}
