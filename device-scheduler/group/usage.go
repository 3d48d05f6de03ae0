package group

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Usage returns what the pod holds of each of the node's leaves, from its
// AllocateFrom and DevRequests: the sum over running containers, or what one
// init container holds if that is more. Enum leaves are not used up.
//
// It does not ask whether the node still has the leaf, or enough of it: that is
// what the pod was given, and a device can come back.
func Usage(node *types.NodeInfo, pod *types.PodInfo) (types.ResourceList, error) {
	holds := types.ResourceList{}
	var bad []error
	for name, c := range pod.RunningContainers {
		got, err := containerUsage(node, name, &c)
		bad = append(bad, err)
		for leaf, n := range got {
			holds[leaf] = addCapped(holds[leaf], n)
		}
	}
	for name, c := range pod.InitContainers {
		got, err := containerUsage(node, name, &c)
		bad = append(bad, err)
		for leaf, n := range got {
			holds[leaf] = max(holds[leaf], n)
		}
	}
	return holds, joinSorted(bad)
}

func containerUsage(node *types.NodeInfo, container string, c *types.ContainerInfo) (types.ResourceList, error) {
	holds := types.ResourceList{}
	var bad []error
	for want, from := range c.AllocateFrom {
		if resource.PrecheckedResource(want) {
			continue
		}
		n, ok := c.DevRequests[want]
		switch {
		case !ok:
			bad = append(bad, fmt.Errorf("container %q holds %q for %q, which it does not request", container, from, want))
		case n < 0:
			bad = append(bad, &InvalidRequest{container, want, n})
		case resource.PrecheckedResource(from):
			bad = append(bad, fmt.Errorf("container %q holds %q for %q, which is no group resource", container, from, want))
		case n > 0 && scorerOf(from, node.Scorer[from]) != EnumScorer:
			holds[from] = addCapped(holds[from], n)
		}
	}
	return holds, joinSorted(bad)
}

// Take adds what the pod holds to the node's Used. If the pod's allocation makes
// no sense it returns an error and takes nothing.
func Take(node *types.NodeInfo, pod *types.PodInfo) error {
	holds, err := Usage(node, pod)
	if err != nil {
		return fmt.Errorf("take what pod %s holds on node %s: %w", pod.Name, node.Name, err)
	}
	if node.Used == nil {
		node.Used = types.ResourceList{}
	}
	for leaf, n := range holds {
		node.Used[leaf] = addCapped(node.Used[leaf], n)
	}
	return nil
}

// Return undoes Take. What is then unused has no entry in Used. If less is used
// than the pod returns, the two do not belong together: nothing stays used,
// never less than that, since a negative amount would be given out twice, and it
// returns an error.
func Return(node *types.NodeInfo, pod *types.PodInfo) error {
	holds, err := Usage(node, pod)
	if err != nil {
		return fmt.Errorf("return what pod %s holds on node %s: %w", pod.Name, node.Name, err)
	}
	var bad []error
	for leaf, n := range holds {
		left := node.Used[leaf] - n
		if left < 0 {
			bad = append(bad, fmt.Errorf("%d of %q, of which %d are used", n, leaf, node.Used[leaf]))
		}
		if left <= 0 {
			delete(node.Used, leaf)
			continue
		}
		node.Used[leaf] = left
	}
	if err := joinSorted(bad); err != nil {
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

// joinSorted joins errors that were found in the order of a map.
func joinSorted(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
