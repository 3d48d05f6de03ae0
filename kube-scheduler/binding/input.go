package binding

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Input returns what the pod's author asks of devices in the annotation, each
// container filed as it holds devices: see InitContainers. Containers that the pod does not have
// stay where they are. No map is nil, and all are the caller's to change.
func Input(pod *v1.Pod) (*types.PodInfo, error) {
	in, err := assignment.Input(pod.Annotations)
	if err != nil {
		return nil, err
	}
	for name := range in.InitContainers {
		if _, twice := in.RunningContainers[name]; twice {
			return nil, fmt.Errorf("annotation %s has container %q under initcontainer and under runningcontainer: remove one", assignment.Annotation, name)
		}
	}
	in = in.Clone() // no map is nil
	init := InitContainers(pod, in)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		from, to := in.InitContainers, in.RunningContainers
		if init[c.Name] {
			from, to = to, from
		}
		if written, ok := from[c.Name]; ok {
			delete(from, c.Name)
			to[c.Name] = written
		}
	}
	return in, nil
}

// InitContainers are the names of the containers that end before others get devices, so that
// these may be the same. Sidecars (restartable init containers) are not among them, and neither is
// what runs beside one that requests devices, in the spec or in the annotation, which is in.
func InitContainers(pod *v1.Pod, in *types.PodInfo) map[string]bool {
	names := make(map[string]bool, len(pod.Spec.InitContainers))
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if !podutil.IsRestartableInitContainer(c) {
			names[c.Name] = true
		} else if requestsDevices(c, in) {
			break
		}
	}
	return names
}

// requestsDevices reports whether the container requests devices other than slots, of which each has a
// claim of its own.
func requestsDevices(c *v1.Container, in *types.PodInfo) bool {
	if written := in.GetContainerInPod(c.Name); written != nil {
		for name, n := range written.Requests {
			if n > 0 && !strings.HasPrefix(string(name), assignment.ResourcePrefix) {
				return true
			}
		}
	}
	for name := range c.Resources.Requests {
		if strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), assignment.ResourcePrefix) {
			return true
		}
	}
	return false
}

// AfterInputChange is a queueing hint for fwk.Pod updates: the author has changed
// the annotation for which the pod was refused, or the misspelt key of it, or has shortened
// annotations that left no room for an assignment.
var AfterInputChange = informer.Hint(func(pod, before, now *v1.Pod) bool {
	return before != nil && now != nil && now.UID == pod.UID &&
		(before.Annotations[assignment.Annotation] != now.Annotations[assignment.Annotation] ||
			assignment.Misspelt(before.Annotations) != assignment.Misspelt(now.Annotations) ||
			assignment.Size(nil, before.Annotations) > assignment.Size(nil, now.Annotations))
})
