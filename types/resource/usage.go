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
// AllocateFrom and DevRequests; see OfPod. Enum leaves are not used up.
//
// It does not ask whether the node still has the leaf, or enough of it: that is
// what the pod was given, and a device can come back.
func Usage(node *types.NodeInfo, pod *types.PodInfo) (types.ResourceList, error) {
	var bad []error
	holds := OfPod(pod, func(name string, c *types.ContainerInfo) types.ResourceList {
		got, err := containerUsage(node, name, c)
		bad = append(bad, err)
		return got
	})
	return holds, JoinSorted(bad)
}

// OfPod returns what the pod holds if each of its containers holds what of says: the sum over running
// containers, or what one init container holds if that is more.
func OfPod(pod *types.PodInfo, of func(name string, c *types.ContainerInfo) types.ResourceList) types.ResourceList {
	holds := types.ResourceList{}
	for name, c := range pod.RunningContainers {
		Take(holds, of(name, &c))
	}
	for name, c := range pod.InitContainers {
		for leaf, n := range of(name, &c) {
			holds[leaf] = max(holds[leaf], n)
		}
	}
	return holds
}

// Take adds what is held to what is used.
func Take(used, holds types.ResourceList) {
	for leaf, n := range holds {
		used[leaf] = AddCapped(used[leaf], n)
	}
}

// Return undoes Take. What is then unused has no entry in used. If less is used than is held, the two do
// not belong together: nothing stays used, never less than that, since a negative amount would be given out
// twice, and it returns an error.
func Return(used, holds types.ResourceList) error {
	var bad []error
	for leaf, n := range holds {
		left := used[leaf] - n
		if left < 0 {
			bad = append(bad, fmt.Errorf("%d of %q, of which %d are used", n, leaf, used[leaf]))
		}
		if used[leaf] = left; left <= 0 {
			delete(used, leaf)
		}
	}
	return JoinSorted(bad)
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
