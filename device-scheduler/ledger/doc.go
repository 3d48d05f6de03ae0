// Package ledger accounts for device slots: which exist, which node can reach
// them, which pod holds which, and which a pod would get on a node.
//
// It is a deterministic state machine over values: no clock, no I/O, no
// goroutines and no locks, so that every race the scheduler can meet is a
// sequence of calls that a scenario file can spell out (see testdata/scenarios). The
// caller serializes writers; any number of Drafts may read between writes.
//
// A slot is free only if no pod holds it (holders.go) and the node side has no
// claim on it in Instance.spec.deviceUsage (inventory.go). Its parts:
//
//   - inventory.go: Configurations and Instances as the API has them
//   - record.go: what is kept of an Instance
//   - claims.go: claims that were made for pods which do not use them
//   - index.go: Instances ordered by free slots for each group of nodes
//   - holders.go: pods and the slots they hold; counts.go: how many on each node
//   - nominate.go: slots kept for pods that preemption made room for
//   - gain.go: what a change lets waiting pods find, free or by preemption
//   - draft.go: a what-if view for one scheduling cycle
//   - fit.go: choosing slots for a pod's containers; queue.go: from which Instance
//     next; trade.go, room.go: where the containers get in each other's way
//   - preempt.go: which pods would have to go
//   - survey.go: what many nodes have for one request, from counts alone
//   - shortfall.go: why a pod does not fit
package ledger

import (
	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Strategy says which Instance a slot is taken from first.
type Strategy string

const (
	// Spread takes from the Instance with the most free slots.
	Spread Strategy = "Spread"
	// Pack takes from the Instance with the fewest.
	Pack Strategy = "Pack"
)

// Ledger is the account. The zero value is not usable; see New.
type Ledger struct {
	kinds     map[string]*kind // by Configuration name
	instances map[instanceKey]*record
	devices   map[string]*device // by Instance name
	pods      map[string]*podRecord
	ending    map[string]*podRecord // those of the pods that are being deleted
	// nominations keep slots for pods that preemption made room for, by UID.
	nominations map[string]*nomination
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		kinds:     map[string]*kind{},
		instances: map[instanceKey]*record{},
		devices:   map[string]*device{},
		pods:      map[string]*podRecord{},
		ending:    map[string]*podRecord{},

		nominations: map[string]*nomination{},
	}
}

// kind is a Configuration and its Instances.
type kind struct {
	name string
	// owners are the Configurations of this name, by namespace. Resource names
	// have no namespace, so that one of them owns the name.
	owners map[string]*owner
	active string // namespace of the owner; "" when there is none
	// groups of nodes that reach the same Instances, by their joined names.
	groups map[string]*group
	byNode map[string]reach
	spare  *btree.FreeListG[*device] // of all groups' orders
	free   int                       // free slots of all groups
	// version changes with whatever of the kind is not a count: its owner, how
	// unique its Instances must be, and which nodes reach any.
	version uint64
	// surveyed is what a roll's nodes reached as of a version.
	surveyed struct {
		roll    *Roll
		version uint64
		reaches []reach
	}
}

// owner is one Configuration of a kind's name, with its namespace's Instances.
type owner struct {
	namespace     string
	configuration *akriv0.Configuration // nil when only its Instances are known
	instances     []*record
}

// reach is what one node reaches of a kind. Filter and Score look at it for each
// pod on hundreds of nodes, and the processor waits for memory meanwhile: so
// that it lies in the map itself, and a group has its counts side by side.
type reach struct {
	own    *group   // of Instances that no other node reaches; nil without any
	shared []*group // with other nodes
}

// group is a set of nodes with the Instances that exactly they can reach.
type group struct {
	members int
	slots   int // capacity of all members
	free    int // free slots of all members
	offers  int // members with a free slot: those in order
	key     string
	nodes   []string
	order   *btree.BTreeG[*device]
}

// device is an Instance, or what is left of one while pods hold its slots.
type device struct {
	name     string
	kind     *kind
	exists   bool
	capacity int
	nodes    []string // that reach it, sorted
	group    *group
	slots    []slotState // at least capacity long
	// beyond are slots behind these that pods hold; see know.
	beyond map[int]*slotState
	free   bitset
	nfree  int
	// clOnNode counts configuration-level holders by node, for UniquePerNode.
	clOnNode counts
}

type slotState struct {
	// holders are pod UIDs. More than one is a conflict, which only several
	// schedulers or forged pods can cause; none of them is forgotten.
	holders []string
	claim   string // the value in deviceUsage
	nominee string // UID of the pod that the slot is kept for
}
