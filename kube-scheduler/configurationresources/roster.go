package configurationresources

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// roster has the places on a roll of the scheduler's nodes. They are found by the
// address of their NodeInfo, which a node keeps in the scheduler's snapshot; a copy
// of it, made to imagine other pods on the node, has no place. It never changes.
type roster struct {
	list   []fwk.NodeInfo
	roll   *ledger.Roll
	places map[*framework.NodeInfo]int32
}

func newRoster(list []fwk.NodeInfo) *roster {
	names := make([]string, len(list))
	r := &roster{list: list, places: make(map[*framework.NodeInfo]int32, len(list))}
	for i, node := range list {
		names[i] = node.Node().Name
		if info, ok := node.(*framework.NodeInfo); ok {
			r.places[info] = int32(i)
		}
	}
	r.roll = ledger.NewRoll(names)
	return r
}

// of reports whether the roster is of the list. The snapshot makes a new one when
// nodes come or go.
func (r *roster) of(list []fwk.NodeInfo) bool {
	return r != nil && len(r.list) == len(list) && (len(list) == 0 || &r.list[0] == &list[0])
}

// place is the node's on the roll.
func (r *roster) place(node fwk.NodeInfo) int {
	if info, ok := node.(*framework.NodeInfo); ok {
		if place, ok := r.places[info]; ok {
			return int(place)
		}
	}
	return ledger.Unlisted
}
