package slotcache

import (
	"sync/atomic"

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
	// kubecri are the generations of the nodes when no kubecri was away, by place.
	kubecri []atomic.Int64
}

func newSnapshot(list []fwk.NodeInfo) *snapshot {
	names := make([]string, len(list))
	r := &snapshot{list: list, places: make(map[*framework.NodeInfo]int32, len(list)),
		kubecri: make([]atomic.Int64, len(list))}
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
