package admit

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Reasons of the pod's events.
const (
	// reasonRefused: its assignment must not be used.
	reasonRefused = "DeviceRefused"
	// reasonUnavailable: its devices, or the API server, could not be reached in
	// time. The kubelet tries again, and it may pass.
	reasonUnavailable = "DeviceUnavailable"
)

// refused makes the status that the kubelet reports, and records it as an Event of the pod
// of our own, which can be found by its reason; the kubelet's are all "Failed". Of
// the kubelet's retries the recorder makes one event with a count.
func (a *Admitter) refused(logger klog.Logger, c Container, grants []assignment.Grant, err error) error {
	message := bounded(err.Error())
	logger.Error(errors.New(message), "Refused to create a container")
	code, result, reason := codes.Unavailable, metrics.Failed, reasonUnavailable
	if r := (*claims.Refusal)(nil); errors.As(err, &r) {
		code, result, reason = codes.FailedPrecondition, metrics.Refused, reasonRefused
	}
	a.Metrics.Injection(result)
	devices := "its devices"
	if len(grants) > 0 {
		devices = "its slots " + claims.Some(slotNames(grants))
	}
	text := fmt.Sprintf("kubecri does not start container %q of pod %s without %s: %s", c.Name, c.Pod, devices, message)
	if a.Events != nil { // which neither waits nor fails
		a.Events.Event(a.reference(c), corev1.EventTypeWarning, reason, text)
	}
	return status.Error(code, text)
}

// maxReason is how many characters of a reason are logged and sent: a pod's author can write names
// of a hundred thousand, and the kubelet asks again and again.
const maxReason = 2048

// bounded cuts a reason to what may be logged and sent.
func bounded(reason string) string {
	if text := []rune(reason); len(text) > maxReason {
		return string(text[:maxReason]) + "…"
	}
	return reason
}

// reference is the container as events refer to it.
func (a *Admitter) reference(c Container) *corev1.ObjectReference {
	ref := c.Pod.Reference()
	if spec := a.spec(c.PodAnnotations, c.Pod); spec != nil {
		ref.FieldPath = fieldPath(&spec.Spec, c.Name)
	}
	return ref
}

// fieldPath is the container's place in its pod, as the kubelet's events have it.
func fieldPath(spec *corev1.PodSpec, container string) string {
	for field, containers := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == container {
				return fmt.Sprintf("spec.%s{%s}", field, container)
			}
		}
	}
	return ""
}
