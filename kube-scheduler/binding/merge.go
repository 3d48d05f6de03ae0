package binding

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types"
)

// merge returns the pod's assignment: what its author wrote as input, and the
// plugins' parts, in the order of the plugins' names.
func merge(pod *v1.Pod, node string, by map[string]*types.PodInfo) (*types.PodInfo, error) {
	info, err := Input(pod)
	if err != nil {
		return nil, err
	}
	info.Name, info.NodeName = pod.Name, node
	init := initContainers(pod)
	for _, plugin := range slices.Sorted(maps.Keys(by)) {
		for _, part := range []map[string]types.ContainerInfo{by[plugin].InitContainers, by[plugin].RunningContainers} {
			for _, name := range slices.Sorted(maps.Keys(part)) {
				to := &info.RunningContainers
				if init[name] {
					to = &info.InitContainers
				}
				merged, err := add((*to)[name], part[name])
				if err != nil {
					return nil, fmt.Errorf("plugin %s: container %q: %w", plugin, name, err)
				}
				if *to == nil {
					*to = map[string]types.ContainerInfo{}
				}
				(*to)[name] = merged
			}
		}
	}
	return info, nil
}

// add returns the container with a part; both stay as they are.
func add(c, part types.ContainerInfo) (types.ContainerInfo, error) {
	requests := maps.Clone(c.Requests)
	for name, n := range part.Requests {
		if requests == nil {
			requests = types.ResourceList{}
		}
		requests[name] = max(requests[name], n)
	}
	c.Requests = requests
	var err error
	if c.DevRequests, err = join(c.DevRequests, part.DevRequests, "requested"); err != nil {
		return c, err
	}
	c.AllocateFrom, err = join(c.AllocateFrom, part.AllocateFrom, "allocated")
	return c, err
}

// join is the union of two maps. One key with two values has two owners, and
// which of them the node would follow is chance.
func join[M ~map[types.ResourceName]V, V comparable](has, more M, what string) (M, error) {
	if len(more) == 0 {
		return has, nil
	}
	all := maps.Clone(has)
	if all == nil {
		all = make(M, len(more))
	}
	for name, v := range more {
		if other, taken := all[name]; taken && other != v {
			return nil, fmt.Errorf("%q is %s as %v, and by another plugin as %v", name, what, v, other)
		}
		all[name] = v
	}
	return all, nil
}
