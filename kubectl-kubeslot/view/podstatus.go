package view

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func scheduled(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
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

func tried(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
}

// started reports whether the container runs or has run to its end.
func started(pod *corev1.Pod, container string) bool {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.Name == container {
				return s.State.Waiting == nil && (s.State.Running != nil || s.State.Terminated != nil)
			}
		}
	}
	return false
}

// running reports whether the container runs.
func running(pod *corev1.Pod, container string) bool {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.Name == container && s.State.Running != nil {
				return true
			}
		}
	}
	return false
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
