package configurationresources

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// partOf is the slots as a part of a pod's assignment.
func partOf(a ledger.Assignment) *types.PodInfo {
	part := types.NewPodInfo()
	for name, grants := range a {
		var c types.ContainerInfo
		assignment.Set(&c, grants)
		part.RunningContainers[name] = c
	}
	return part
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
