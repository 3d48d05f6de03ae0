package deviceplugins

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// grantOf returns what device schedulers gave a bound pod, as it was when they
// counted it; nil if the pod was not bound with an assignment.
func grantOf(pod *v1.Pod) (*types.PodInfo, error) {
	info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil || info == nil {
		return nil, err
	}
	info = info.Clone() // no map is nil
	addSpec(info, pod)
	dropSlots(info)
	return info, nil
}

// gaveSame reports whether two pods were given the same; nil was given nothing.
func gaveSame(a, b *types.PodInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return maps.EqualFunc(partOf(a), partOf(b), func(a, b types.ContainerInfo) bool {
		return maps.Equal(a.DevRequests, b.DevRequests) && maps.Equal(a.AllocateFrom, b.AllocateFrom)
	})
}

// partOf is what the pod is to be told of its allocation, by container.
func partOf(allocated *types.PodInfo) map[string]types.ContainerInfo {
	part := map[string]types.ContainerInfo{}
	for name, c := range allocated.Containers() {
		if len(c.DevRequests) > 0 || len(c.AllocateFrom) > 0 {
			part[name] = types.ContainerInfo{DevRequests: c.DevRequests, AllocateFrom: c.AllocateFrom}
		}
	}
	return part
}

// gave reports whether device schedulers did anything for the pod: translated a
// request, or allocated something.
func gave(allocated *types.PodInfo) bool {
	for _, c := range allocated.Containers() {
		if len(c.AllocateFrom) > 0 || !maps.Equal(c.DevRequests, c.Requests) {
			return true
		}
	}
	return false
}
