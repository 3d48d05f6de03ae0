package slotcache

import (
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// snapshot has the places in the list of the scheduler's nodes. They are found by the
// address of their NodeInfo, which a node keeps in the scheduler's snapshot; a copy
// of it, made to imagine other pods on the node, has no place.
type snapshot struct {
	list   []fwk.NodeInfo
	nodes  *ledger.NodeList
	places map[*framework.NodeInfo]int32
	// freeAllocatable are of the resources that pods asked for. The slot cache's lock protects the map.
	freeAllocatable map[v1.ResourceName]freeAllocatable
}

func newSnapshot(list []fwk.NodeInfo) *snapshot {
	names := make([]string, len(list))
	r := &snapshot{list: list, places: make(map[*framework.NodeInfo]int32, len(list)), freeAllocatable: map[v1.ResourceName]freeAllocatable{}}
	for i, node := range list {
		names[i] = node.Node().Name
		if info, ok := node.(*framework.NodeInfo); ok {
			r.places[info] = int32(i)
		}
	}
	r.nodes = ledger.NewNodeList(names)
	return r
}

// of reports whether the snapshot is of the list. The snapshot makes a new one when
// nodes come or go.
func (r *snapshot) of(list []fwk.NodeInfo) bool {
	return r != nil && len(r.list) == len(list) && (len(list) == 0 || &r.list[0] == &list[0])
}

// NoPlace is of a node that is not on the scheduler's list: a copy, to imagine other pods there.
const NoPlace = -1

// place is the node's in the list.
func (r *snapshot) place(node fwk.NodeInfo) int {
	if info, ok := node.(*framework.NodeInfo); ok {
		if place, ok := r.places[info]; ok {
			return int(place)
		}
	}
	return NoPlace
}

// freeAllocatable are how much of a resource the nodes advertise and no pod uses, by place:
// where that is in a NodeInfo, the processor waits for memory several times. Each
// is of one generation of the NodeInfo, which changes with the node and its pods.
type freeAllocatable []atomic.Uint64

const (
	amountBits = 16
	maxAmount  = 1<<amountBits - 1
	// maxFreeAllocatable bounds the resources that freeAllocatable are remembered of: there may be
	// thousands of Configurations.
	maxFreeAllocatable = 64
)

// freeAllocatableOf returns the freeAllocatable of the resource. The caller holds the slot cache's lock.
func (r *snapshot) freeAllocatableOf(name v1.ResourceName) freeAllocatable {
	found, ok := r.freeAllocatable[name]
	if !ok {
		if len(r.freeAllocatable) == maxFreeAllocatable {
			clear(r.freeAllocatable)
		}
		found = make(freeAllocatable, len(r.list))
		r.freeAllocatable[name] = found
	}
	return found
}

// enough reports whether at least n are known to be left.
func (r freeAllocatable) enough(place int, generation, n int64) bool {
	known := r[place].Load()
	return known>>amountBits == uint64(generation)&(1<<(64-amountBits)-1) && int64(known&maxAmount) >= n
}

func (r freeAllocatable) remember(place int, generation, left int64) {
	r[place].Store(uint64(generation)<<amountBits | uint64(max(0, min(left, maxAmount))))
}
