package resource

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kubeslot/kubeslot/types"
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
			holds[leaf] = AddCapped(holds[leaf], n)
		}
	}
	for name, c := range pod.InitContainers {
		got, err := containerUsage(node, name, &c)
		bad = append(bad, err)
		for leaf, n := range got {
			holds[leaf] = max(holds[leaf], n)
		}
	}
	return holds, JoinSorted(bad)
}

func containerUsage(node *types.NodeInfo, container string, c *types.ContainerInfo) (types.ResourceList, error) {
	holds := types.ResourceList{}
	var bad []error
	for want, from := range c.AllocateFrom {
		if PrecheckedResource(want) {
			continue
		}
		n, ok := c.DevRequests[want]
		switch {
		case !ok:
			bad = append(bad, fmt.Errorf("container %q holds %q for %q, which it does not request", container, from, want))
		case n < 0:
			bad = append(bad, &InvalidRequest{Container: container, Resource: want, Count: n})
		case PrecheckedResource(from):
			bad = append(bad, fmt.Errorf("container %q holds %q for %q, which is no group resource", container, from, want))
		case n > 0 && Scorer(from, node.Scorer[from]) != EnumScorer:
			holds[from] = AddCapped(holds[from], n)
		}
	}
	return holds, JoinSorted(bad)
}

// JoinSorted joins the errors that are not nil and were found in the order of a map.
func JoinSorted(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// AddCapped adds counts that are not negative; what does not fit is math.MaxInt64.
func AddCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
