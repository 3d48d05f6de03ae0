package configurationresources

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// annotations returns the annotations that give the pod its slots on the node:
// what the author wrote as input stays, all else in it is the scheduler's.
func annotations(pod *v1.Pod, node string, a ledger.Assignment) (map[string]string, error) {
	written, err := assignment.DecodePod(pod.Annotations)
	if err != nil {
		return nil, err
	}
	info, err := assignment.Input(written)
	if err != nil {
		return nil, err
	}
	info.Name, info.NodeName = pod.Name, node
	init := make(map[string]bool, len(pod.Spec.InitContainers))
	for i := range pod.Spec.InitContainers {
		init[pod.Spec.InitContainers[i].Name] = true
	}
	for name, grants := range a {
		containers := &info.RunningContainers
		if init[name] {
			containers = &info.InitContainers
		}
		if *containers == nil {
			*containers = map[string]types.ContainerInfo{}
		}
		c := (*containers)[name]
		assignment.Set(&c, grants)
		(*containers)[name] = c
	}
	return assignment.Encode(info, string(pod.UID), pod.Annotations)
}

// assigned returns the slots that a scheduler gave a bound pod; nil if none did.
func assigned(pod *v1.Pod) (ledger.Assignment, error) {
	info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil || info == nil {
		return nil, err
	}
	a := ledger.Assignment{}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for name, c := range containers {
			grants, err := assignment.Grants(&c)
			if err != nil {
				return nil, fmt.Errorf("container %q: %w", name, err)
			}
			if len(grants) > 0 {
				a[name] = append(a[name], grants...)
			}
		}
	}
	return a, nil
}
