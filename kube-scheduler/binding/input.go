package binding

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Input returns what the pod's author asks of devices in the annotation, each
// container filed as it runs: a sidecar (a restartable init container) among the
// RunningContainers, for it runs beside them. Containers that the pod does not have
// stay where they are. It is never nil without an error; its resource maps must not
// be changed.
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
	file := func(name string, from, to *map[string]types.ContainerInfo) {
		c, ok := (*from)[name]
		if !ok {
			return
		}
		delete(*from, name)
		if *to == nil {
			*to = map[string]types.ContainerInfo{}
		}
		(*to)[name] = c
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if Sidecar(c) {
			file(c.Name, &in.InitContainers, &in.RunningContainers)
		} else {
			file(c.Name, &in.RunningContainers, &in.InitContainers)
		}
	}
	for i := range pod.Spec.Containers {
		file(pod.Spec.Containers[i].Name, &in.InitContainers, &in.RunningContainers)
	}
	return in, nil
}

// Sidecar reports whether an init container runs beside the others.
func Sidecar(init *v1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// initContainers are the names of those that end before the others begin.
func initContainers(pod *v1.Pod) map[string]bool {
	names := make(map[string]bool, len(pod.Spec.InitContainers))
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; !Sidecar(c) {
			names[c.Name] = true
		}
	}
	return names
}

// AfterInputChange is a queueing hint for fwk.Pod updates: the author has changed
// the annotation for which the pod was refused.
func AfterInputChange(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	oldPod, newPod, err := schedutil.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if oldPod == nil || newPod == nil || newPod.UID != pod.UID ||
		oldPod.Annotations[assignment.Annotation] == newPod.Annotations[assignment.Annotation] {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
