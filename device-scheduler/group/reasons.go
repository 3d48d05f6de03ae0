package group

import (
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// invalid returns a reason for each group request that makes no sense.
func invalid(pod *types.PodInfo) []devicescheduler.PredicateFailureReason {
	var bad []devicescheduler.PredicateFailureReason
	for name, c := range pod.Containers() {
		for res, n := range c.DevRequests {
			if n < 0 && resource.IsGroupResourceName(res) {
				bad = append(bad, &resource.InvalidRequest{Container: name, Resource: res, Count: n})
			}
		}
	}
	slices.SortFunc(bad, func(a, b devicescheduler.PredicateFailureReason) int {
		return strings.Compare(a.GetReason(), b.GetReason())
	})
	return bad
}

// reasons says what the container lacks: for each kind of leaf in the part of
// its request that has no place, how much the whole container asks for and how
// much the node has and uses. If it says that there is enough, then it is not
// where the request's groups need it.
//
// A kind of leaf is its name without indexes, such as
// "resource/group/gpugrp0/*/gpu/*/cards", so that the reasons of many nodes and
// of many devices are the same text.
// never is whether it lacks that on an idle node, too.
func (f *fitting) reasons(container string, never bool) []devicescheduler.PredicateFailureReason {
	failed := f.failed
	if failed == nil {
		failed = &f.want.root
	}
	f.undo(0)
	var kinds []types.ResourceName
	requested, listed := map[types.ResourceName]int64{}, map[types.ResourceName]bool{}
	for i, l := range f.want.leaves {
		kind := kindOf(l.name)
		requested[kind] = resource.AddCapped(requested[kind], l.count)
		if i >= failed.lo && i < failed.hi && !listed[kind] {
			kinds, listed[kind] = append(kinds, kind), true
		}
	}
	used, capacity := map[types.ResourceName]int64{}, map[types.ResourceName]int64{}
	for i, l := range f.node.leaves {
		kind := kindOf(l.name)
		used[kind] = resource.AddCapped(used[kind], f.leaves[i].node)
		capacity[kind] = resource.AddCapped(capacity[kind], max(l.count, 0))
	}
	reasons := make([]devicescheduler.PredicateFailureReason, 0, len(kinds))
	for _, kind := range kinds {
		reason := resource.NewInsufficientResourceError(types.ResourceName(container)+"/"+kind, requested[kind], used[kind], capacity[kind])
		if never {
			reason = reason.NeverEnough()
		}
		reasons = append(reasons, reason)
	}
	return reasons
}

// kindOf replaces the indexes in a group resource's name.
func kindOf(name types.ResourceName) types.ResourceName {
	kind := make([]byte, 0, len(name))
	done := 0
	for {
		group, rest, ok := cutGroup(name, done)
		if !ok {
			return types.ResourceName(append(kind, name[done:]...))
		}
		if done == 0 {
			kind = append(kind, types.DeviceGroupPrefix+"/"...)
		}
		kind = append(append(kind, group...), "/*/"...)
		done = rest
	}
}
