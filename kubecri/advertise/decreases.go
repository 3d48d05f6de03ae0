package advertise

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types"
)

// pendingDecreases are the slots, and resources of device plugins, that the node says beyond
// what it needs, by resource.
//
// An amount is raised at once and lowered only when it has not been needed for a
// while. What is not needed here may be on its way: the scheduler has bound a pod
// that our watch does not show yet, and the kubelet rejects it for good when the
// node has less than it asks for. Too much, on the other hand, does no harm: the
// scheduler gives slots from DeviceSlices alone.
type pendingDecreases map[types.ResourceName]decrease

// decrease is what is needed of a resource, and since when it is no more than that.
type decrease struct {
	needed int64
	since  time.Time
}

// keep raises capacity and allocatable, which are what is needed, to what the node
// says of each resource that has been needed within after. It returns what to know
// next time, and when the first resource is due; 0 for none.
func (known pendingDecreases) keep(node *corev1.Node, ours func(corev1.ResourceName) bool, capacity, allocatable types.ResourceList, now time.Time, after time.Duration) (pendingDecreases, time.Duration) {
	next, recheck := pendingDecreases{}, time.Duration(0)
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for resource := range list {
			name := types.ResourceName(resource)
			if _, done := next[name]; done || !ours(resource) {
				continue
			}
			hasCapacity, hasAllocatable := node.Status.Capacity[resource], node.Status.Allocatable[resource]
			if hasCapacity.Value() <= capacity[name] && hasAllocatable.Value() <= allocatable[name] {
				continue
			}
			s, ok := known[name]
			if !ok || allocatable[name] < s.needed {
				s.since = now
			}
			s.needed = allocatable[name]
			next[name] = s // also when due: the patch may fail
		}
	}
	for name, s := range next {
		left := after - now.Sub(s.since)
		if left <= 0 {
			continue
		}
		if recheck == 0 || left < recheck {
			recheck = left
		}
		hasCapacity, hasAllocatable := node.Status.Capacity[corev1.ResourceName(name)], node.Status.Allocatable[corev1.ResourceName(name)]
		capacity[name] = max(capacity[name], hasCapacity.Value())
		allocatable[name] = max(allocatable[name], hasAllocatable.Value())
	}
	return next, recheck
}
