// Package ledger accounts for device slots: which exist, which node can reach
// them, which pod holds which, and which a pod would get on a node.
//
// It is a deterministic state machine over values: no clock, no I/O, no
// goroutines and no locks, so that every race the scheduler can meet is a
// sequence of calls that a scenario file can spell out (see testdata/scenarios). The
// caller serializes writers; any number of Drafts may read between writes.
//
// A slot is free only if no pod holds it (holders.go) and no SlotClaim that counts is on
// it (claims.go). Its parts:
//
//   - configurations.go: Configurations, one of which owns a name
//   - deviceslices.go: DeviceSlices as the API has them; nodes.go: nodes and their labels
//   - reports.go: what nodes report, and which nodes reach an Instance for it
//   - index.go: Instances ordered by free slots for each set of nodes
//   - devices.go: an Instance's slots
//   - claims.go: SlotClaims, those that count and those of pods which do not use them
//   - holders.go: pods and the slots they hold; counts.go: how many on each node
//   - double_allocation.go: which of several bound pods keeps a slot
//   - nominate.go: slots kept for pods that preemption made room for
//   - event.go: what a change lets waiting pods find, free or by preemption
//   - draft.go: a what-if view for one scheduling cycle
//   - fit.go: what a pod asks for as problems of package slotsearch, which chooses
//   - strategy.go: from which Instance first
//   - preempt.go: which pods would have to go
//   - reach.go: which nodes a request could be served on
//   - feasibility.go: what many nodes have for one request, from counts alone
//   - shortfall.go: why a pod does not fit
//   - slot_counts.go: slots by state
package ledger

import (
	"hash/maphash"

	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Ledger is the account. The zero value is not usable; see New.
type Ledger struct {
	kinds       map[string]*kind   // by Configuration name
	devices     map[string]*device // by Instance name
	nodes       map[string]*nodeRecord
	slices      map[string]*sliceRecord
	pods        map[string]*podRecord
	terminating map[string]*podRecord // those of the pods that are being deleted
	// nominations keep slots for pods that preemption made room for, by UID.
	nominations map[string]*nomination
	seed        maphash.Seed // of the hashes of devices' ids
	totals      totals
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		kinds:       map[string]*kind{},
		devices:     map[string]*device{},
		nodes:       map[string]*nodeRecord{},
		slices:      map[string]*sliceRecord{},
		pods:        map[string]*podRecord{},
		terminating: map[string]*podRecord{},

		nominations: map[string]*nomination{},
		seed:        maphash.MakeSeed(),
	}
}

// kind is a Configuration and its Instances.
type kind struct {
	name string
	// configurations are those of this name, by namespace. Resource names have no
	// namespace, so that one of them owns the name.
	configurations map[string]*akriv0.Configuration
	owner          *akriv0.Configuration // nil when there is none
	// devices are those that nodes report, or did while somebody has slots of them.
	devices map[*device]struct{}
	// selected are the nodes that reach all devices, with spec.discovery.
	selected nodeSet
	// groups of nodes that reach the same Instances.
	groups map[setKey]*group
	made   uint64 // groups so far
	byNode map[string]reach
	spare  *btree.FreeListG[*device] // of all groups' orders
	free   int                       // free slots of all groups
	counts [uses]int                 // of the other slots
	// version changes with the Configurations of the name.
	version uint64
	// snapshot is what a snapshot's nodes reach; nil before the first of them.
	snapshot *table
}

// reach is what one node reaches of a kind. Filter and Score look at it for each
// pod on hundreds of nodes, and the processor waits for memory meanwhile: so
// that it lies in the map itself, and a group has its counts side by side.
type reach struct {
	own    *group   // of Instances that no other node reaches; nil without any
	shared []*group // with other nodes, in the order in which they were made
}

// group is a set of nodes with the Instances that exactly they can reach.
type group struct {
	members int
	slots   int // capacity of all members
	free    int // free slots of all members
	offers  int // members with a free slot: those in order
	nodes   nodeSet
	number  uint64 // of the kind's groups
	order   *btree.BTreeG[*device]
}

// device is an Instance, or what is left of one while its slots are held or claimed.
type device struct {
	name      string
	kind      *kind   // nil before a node has reported it
	reports   *report // what nodes say of it, oldest first
	accepted  *report // the one of these that counts; nil when none does
	reporters int     // nodes whose report is accepted
	capacity  int
	group     *group       // nil when no node reaches it: then it does not exist
	slots     []*slotState // those that somebody has or is to have, by index
	taken     bitset       // which of these are within the capacity
	nfree     int          // 0 when it does not exist
	leftOut   int          // reports that do not count; see settle
	totals    *totals      // the ledger's
	// clOnNode counts configuration-level holders by node, for UniquePerNode.
	clOnNode counts
}

// slotState is a slot that somebody has or is to have. What is kept of a device follows
// these, and not its capacity.
type slotState struct {
	index int
	// holders are pod UIDs. More than one is a double allocation, which only several
	// schedulers or forged pods can cause; none of them is forgotten.
	holders []string
	claim   *claim // nil when there is none; see claimed
	nominee string // UID of the pod that the slot is nominated for
	counted slotUse
}
