package group

import (
	"fmt"
	"maps"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Take adds what the pod holds to the node's Used. If the pod's allocation makes
// no sense it returns an error and takes nothing.
func Take(node *types.NodeInfo, pod *types.PodInfo) error {
	holds, err := resource.Usage(node, pod)
	if err != nil {
		return fmt.Errorf("take what pod %s holds on node %s: %w", pod.Name, node.Name, err)
	}
	if node.Used == nil {
		node.Used = types.ResourceList{}
	}
	resource.Take(node.Used, holds)
	return nil
}

// Return undoes Take, with an error as resource.Return's.
func Return(node *types.NodeInfo, pod *types.PodInfo) error {
	holds, err := resource.Usage(node, pod)
	if err != nil {
		return fmt.Errorf("return what pod %s holds on node %s: %w", pod.Name, node.Name, err)
	}
	if err := resource.Return(node.Used, holds); err != nil {
		return fmt.Errorf("pod %s returns more than is used on node %s: %w", pod.Name, node.Name, err)
	}
	return nil
}

// Clear removes the group resources from the AllocateFrom of all containers, so
// that Fit places them anew.
func Clear(pod *types.PodInfo) {
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for name, c := range containers {
			c.AllocateFrom = maps.Clone(c.AllocateFrom)
			maps.DeleteFunc(c.AllocateFrom, func(want, _ types.ResourceName) bool {
				return resource.IsGroupResourceName(want)
			})
			containers[name] = c
		}
	}
}
