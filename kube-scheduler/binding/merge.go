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
func merge(pod *v1.Pod, node string, by map[string]part) (*types.PodInfo, error) {
	info, err := Input(pod)
	if err != nil {
		return nil, err
	}
	info.Name, info.NodeName = pod.Name, node
	init := InitContainers(pod, info)
	for _, plugin := range slices.Sorted(maps.Keys(by)) {
		for _, name := range slices.Sorted(maps.Keys(by[plugin])) {
			to := info.RunningContainers
			if init[name] {
				to = info.InitContainers
			}
			has := to[name]
			merged := types.FillContainerInfo(&has)
			if err := add(merged, by[plugin][name]); err != nil {
				return nil, fmt.Errorf("plugin %s: container %q: %w", plugin, name, err)
			}
			to[name] = *merged
		}
	}
	return info, nil
}

// add adds a part to a container, none of whose maps is nil.
func add(c *types.ContainerInfo, part types.ContainerInfo) error {
	for name, n := range part.Requests {
		c.Requests[name] = max(c.Requests[name], n)
	}
	if err := join(c.DevRequests, part.DevRequests, "requested"); err != nil {
		return err
	}
	return join(c.AllocateFrom, part.AllocateFrom, "allocated")
}

// join adds more to a map. One key with two values has two owners, and which of them
// the node would follow is chance.
func join[M ~map[types.ResourceName]V, V comparable](all, more M, what string) error {
	for name, v := range more {
		if other, taken := all[name]; taken && other != v {
			return fmt.Errorf("%q is %s as %v, and by another plugin as %v", name, what, v, other)
		}
		all[name] = v
	}
	return nil
}
