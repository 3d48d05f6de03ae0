package configurationresources

import (
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

// assigned returns the slots that a bound pod holds; nil if no scheduler gave it any.
// The error says why it does not hold all that its annotation says.
func assigned(pod *v1.Pod) (ledger.Assignment, error) {
	return assignment.Held(pod)
}
