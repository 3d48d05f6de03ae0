package widget

import (
	"fmt"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Scheduler is the scheduler's half. It has no state: what the node has, and
// what is used of it, is in the NodeInfo of each call.
type Scheduler struct{}

var _ devicescheduler.DeviceScheduler = Scheduler{}

// AddNode keeps nothing.
func (Scheduler) AddNode(string, *types.NodeInfo) {}

// RemoveNode forgets nothing.
func (Scheduler) RemoveNode(string) {}

// PodFitsDevice translates the pod's requests. Whether there is room is then for
// the group scheduler to say.
func (Scheduler) PodFitsDevice(_ *types.NodeInfo, pod *types.PodInfo, _ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if err := translate(pod); err != nil {
		return false, []devicescheduler.PredicateFailureReason{
			resource.NewInsufficientResourceError(Resource, maxWidgets+1, 0, maxWidgets)}, 0
	}
	return true, nil, 0
}

// PodAllocate translates as PodFitsDevice did: the pod is as its author wrote it
// again.
func (Scheduler) PodAllocate(_ *types.NodeInfo, pod *types.PodInfo) error {
	return translate(pod)
}

// translate has each container ask for its widgets one by one, all with the
// label 0 for their board: so the group scheduler takes them from one board.
func translate(pod *types.PodInfo) error {
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for name, c := range containers {
			n := c.Requests[Resource]
			if n == 0 {
				n = c.KubeRequests[Resource]
			}
			// Ask before looping to what somebody wrote.
			if n < 0 || n > maxWidgets {
				return fmt.Errorf("container %q asks for %d of %s, of which no node can have more than %d", name, n, Resource, maxWidgets)
			}
			for i := range int(n) {
				types.AddGroupResource(c.DevRequests, key(0, i), 1)
			}
			containers[name] = c
		}
	}
	return nil
}

// TakePodResources leaves it to the group scheduler to count what is used.
func (Scheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// ReturnPodResources does as well.
func (Scheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// GetName is unique in the scheduler.
func (Scheduler) GetName() string { return "widget" }

// UsingGroupScheduler has the group scheduler place what was translated.
func (Scheduler) UsingGroupScheduler() bool { return true }
