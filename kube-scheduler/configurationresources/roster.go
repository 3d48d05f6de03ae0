package configurationresources

import (
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// roster has the places on a roll of the scheduler's nodes. They are found by the
// address of their NodeInfo, which a node keeps in the scheduler's snapshot; a copy
// of it, made to imagine other pods on the node, has no place.
type roster struct {
	list   []fwk.NodeInfo
	roll   *ledger.SnapshotIndex
	places map[*framework.NodeInfo]int32
	// rooms are of the resources that pods asked for. The book's lock protects the map.
	rooms map[v1.ResourceName]rooms
}

func newRoster(list []fwk.NodeInfo) *roster {
	names := make([]string, len(list))
	r := &roster{list: list, places: make(map[*framework.NodeInfo]int32, len(list)), rooms: map[v1.ResourceName]rooms{}}
	for i, node := range list {
		names[i] = node.Node().Name
		if info, ok := node.(*framework.NodeInfo); ok {
			r.places[info] = int32(i)
		}
	}
	r.roll = ledger.NewSnapshotIndex(names)
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
	return ledger.NotInSnapshot
}

// rooms are how much of a resource the nodes advertise and no pod uses, by place:
// where that is in a NodeInfo, the processor waits for memory several times. Each
// is of one generation of the NodeInfo, which changes with the node and its pods.
type rooms []atomic.Uint64

const (
	roomBits = 16
	maxRoom  = 1<<roomBits - 1
	// maxRooms bounds the resources that rooms are remembered of: there may be
	// thousands of Configurations.
	maxRooms = 64
)

// roomsOf returns the rooms of the resource. The caller holds the book's lock.
func (r *roster) roomsOf(name v1.ResourceName) rooms {
	found, ok := r.rooms[name]
	if !ok {
		if len(r.rooms) == maxRooms {
			clear(r.rooms)
		}
		found = make(rooms, len(r.list))
		r.rooms[name] = found
	}
	return found
}

// enough reports whether at least n are known to be left.
func (r rooms) enough(place int, generation, n int64) bool {
	known := r[place].Load()
	return known>>roomBits == uint64(generation)&(1<<(64-roomBits)-1) && int64(known&maxRoom) >= n
}

func (r rooms) remember(place int, generation, left int64) {
	r[place].Store(uint64(generation)<<roomBits | uint64(max(0, min(left, maxRoom))))
}
