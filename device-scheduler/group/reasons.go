package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// InvalidRequest is the reason of a pod that fits no node, ever.
type InvalidRequest struct {
	Container string
	Resource  types.ResourceName
	Count     int64
}

var (
	_ devicescheduler.PredicateFailureReason = (*InvalidRequest)(nil)
	_ devicescheduler.PredicateFailureReason = (*resource.InsufficientResourceError)(nil)
)

// GetReason returns the reason as a sentence.
func (r *InvalidRequest) GetReason() string {
	return fmt.Sprintf("container %q requests %d of %q: a count cannot be negative", r.Container, r.Count, r.Resource)
}

// GetInfo returns the resource and the count.
func (r *InvalidRequest) GetInfo() (types.ResourceName, int64, int64, int64) {
	return r.Resource, r.Count, 0, 0
}

// Error is GetReason.
func (r *InvalidRequest) Error() string { return r.GetReason() }

// invalid returns a reason for each group request that makes no sense.
func invalid(pod *types.PodInfo) []devicescheduler.PredicateFailureReason {
	var bad []*InvalidRequest
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for name, c := range containers {
			for res, n := range c.DevRequests {
				if n < 0 && resource.IsGroupResourceName(res) {
					bad = append(bad, &InvalidRequest{name, res, n})
				}
			}
		}
	}
	slices.SortFunc(bad, func(a, b *InvalidRequest) int { return strings.Compare(a.GetReason(), b.GetReason()) })
	var reasons []devicescheduler.PredicateFailureReason
	for _, r := range bad {
		reasons = append(reasons, r)
	}
	return reasons
}

// reasons says what the container lacks: for each kind of leaf in the part of
// its request that has no place, how much the whole container asks for and how
// much the node has and uses. If it says that there is enough, then it is not
// where the request's groups need it.
//
// A kind of leaf is its name without indexes, such as
// "resource/group/gpugrp0/*/gpu/*/cards", so that the reasons of many nodes and
// of many devices are the same text.
func (f *fitting) reasons(container string) []devicescheduler.PredicateFailureReason {
	failed := f.failed
	if failed == nil {
		failed = &f.want.root
	}
	f.undo(0)
	var kinds []types.ResourceName
	requested, listed := map[types.ResourceName]int64{}, map[types.ResourceName]bool{}
	for i, l := range f.want.leaves {
		kind := kindOf(l.name)
		requested[kind] = addCapped(requested[kind], l.count)
		if i >= failed.lo && i < failed.hi && !listed[kind] {
			kinds, listed[kind] = append(kinds, kind), true
		}
	}
	used, capacity := map[types.ResourceName]int64{}, map[types.ResourceName]int64{}
	for i, l := range f.node.leaves {
		kind := kindOf(l.name)
		used[kind] = addCapped(used[kind], f.leaves[i].node)
		capacity[kind] = addCapped(capacity[kind], max(l.count, 0))
	}
	reasons := make([]devicescheduler.PredicateFailureReason, 0, len(kinds))
	for _, kind := range kinds {
		reasons = append(reasons, resource.NewInsufficientResourceError(
			types.ResourceName(container)+"/"+kind, requested[kind], used[kind], capacity[kind]))
	}
	return reasons
}

// kindOf replaces the indexes in a group resource's name.
func kindOf(name types.ResourceName) types.ResourceName {
	kind := make([]byte, 0, len(name))
	done := 0
	for {
		group, _, rest, ok := cutGroup(name, done)
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
