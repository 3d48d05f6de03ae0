package ledger

import (
	"hash/maphash"
	"sync/atomic"
	"time"
	"unique"

	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Ledger is the account. The zero value is not usable; see New.
type Ledger struct {
	configs     map[string]*configRecord // by Configuration name
	devices     map[string]*device       // by Instance name
	nodes       map[string]*nodeRecord
	numbers     numbers
	slices      map[string]*sliceRecord
	pods        map[string]*podRecord
	terminating map[string]*podRecord // those of the pods that are being deleted
	// nominations keep slots for pods that preemption made room for, by UID.
	nominations map[string]*nomination
	// doublyAllocated are the slots that several pods hold.
	doublyAllocated map[slot.Name]*slotState
	seed            maphash.Seed // of the hashes of devices' ids
	dra             dra
	totals          totals
	// searches is how often Preempt was called, which readers do at once.
	searches atomic.Int64
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		configs:     map[string]*configRecord{},
		devices:     map[string]*device{},
		nodes:       map[string]*nodeRecord{},
		slices:      map[string]*sliceRecord{},
		pods:        map[string]*podRecord{},
		terminating: map[string]*podRecord{},

		nominations:     map[string]*nomination{},
		doublyAllocated: map[slot.Name]*slotState{},
		seed:            maphash.MakeSeed(),
		dra:             dra{objects: map[string][]string{}, instances: map[string]int{}},
	}
}

// configRecord is a Configuration and its Instances.
type configRecord struct {
	name string
	// configurations are those of this name, by namespace. Resource names have no
	// namespace, so that one of them owns the name.
	configurations map[string]*akriv0.Configuration
	owner          *akriv0.Configuration // nil when there is none
	// devices are those that nodes report, or did while somebody has slots of them.
	devices map[*device]struct{}
	groups  map[setKey]*group         // by the nodes that reach them
	classes map[setKey]*class         // of nodes, by the Instances that they reach
	reach   classTable                // the classes, by the nodes' numbers
	classNo uint64                    // of the last new class
	spare   *btree.FreeListG[*device] // of all groups' orders
	moves   int                       // how often devices were moved to another group
	free    int                       // free slots of all groups
	counts  [uses]int                 // of the other slots
	// priorities count the slots that pods hold by the pods' priority.
	priorities map[int32]int
	// waiting are the slots that only a nomination keeps from being free.
	waiting map[*device][]*slotState
}

// device is an Instance, or what is left of one while its slots are held or claimed. There are tens
// of thousands, of which few may be in use.
type device struct {
	name      string
	config    *configRecord // nil before a node has reported it
	reports   *report       // what nodes say of it, oldest first
	accepted  *report       // the one of these that counts; nil when none does
	group     *group        // nil when no node reaches it: then it does not exist
	*usage                  // never nil: see notInUse
	capacity  int
	nfree     int   // 0 when it does not exist, or is withheld
	offered   offer // as of the last event
	reporters int32 // nodes whose report is accepted
	leftOut   int32 // reports that do not count; see settle
	kept      bool  // see discoveredKept
	withheld  bool  // see withholds; then none of its slots is free
}

// usage is who has slots of a device, or is to have some.
type usage struct {
	slots []*slotState // those, by index
	taken bitset       // which of these are within the capacity
	// clOnNode counts configuration-level holders by node, for UniquePerNode.
	clOnNode counts
}

// notInUse is the usage of all devices of which nobody has a slot. It is not changed.
var notInUse = &usage{}

// offer is how many slots of a device pods can have: free ones, and those that only a nomination
// keeps from being free.
type offer struct{ free, waiting int32 }

// slotState is a slot that somebody has or is to have. What is kept of a device follows
// these, and not its capacity.
type slotState struct {
	index int
	// holders are the pods that have it, the first one first. More than one is a double allocation,
	// which only several schedulers or forged pods can cause; none of them is forgotten.
	holders []*podRecord
	claim   *claim      // nil when there is none; see claimed
	nominee *nomination // the slot is kept for its pod
	counted slotUse
	access  access // as of the last event
}

// claim is what decisions need of a SlotClaim. It keeps nothing that the object was
// decoded into. One that does not count is kept, too: objects come in any order, and it
// counts once a DeviceSlice shows that its node reaches the device.
type claim struct {
	uid    string
	holder string // a pod's UID, or a device plugin's id
	node   *nodeRecord
	// counts is set while the node lists the device, and the slot is within the capacity:
	// see v1alpha1.ClaimFacts.
	counts bool
	byDRA  bool // a ResourceClaim holds the slot
	ofPod  bool // it names a pod; not one of DRA, nor of a kubelet in device-plugin mode
}

// slotUse is what a slot is counted as.
type slotUse struct {
	as           uint8
	ignoredClaim bool
}

const (
	unused = iota
	held
	claimed
	doublyAllocated
	nominated
	uses
)

// totals are of all devices and slices.
type totals struct {
	ignoredClaims, leftOut, unsound int
}

// supply counts Instances and their slots.
type supply struct {
	instances, slots, free int
	offers                 int // Instances with a free slot
	waiting                int // slots that only a nomination keeps from being free
	withheld               int // Instances that DRA has: see withholds
}

// group is the Instances that the same nodes reach.
type group struct {
	supply
	key     setKey   // of the nodes
	classes []*class // of the nodes
	order   *btree.BTreeG[*device]
	// nominated are the Instances with slots that wait for the pods which they are nominated for.
	nominated []*device
}

// class is the nodes that reach the same Instances, of one Configuration. All nodes of a class
// reach all Instances of its groups, so that a node which comes or goes costs as much as there
// are classes and groups beside it, and not as many nodes or Instances. A class counts what
// its groups have, for Filter is asked about hundreds of nodes for each pod.
type class struct {
	supply
	id     uint64 // never another one's
	key    setKey // of the Instances
	nodes  []*nodeRecord
	groups []*group
}

// setKey tells sets apart: it is the XOR of the members' keys.
type setKey [2]uint64

// nodeRecord is a node that is known, or that slices or claims name.
type nodeRecord struct {
	name   string
	number int32 // see numbers
	key    setKey
	slices []*sliceRecord
	claims int // that name the node
	known  bool
	labels map[string]string
}

// sliceRecord is what decisions need of a DeviceSlice. It keeps nothing that the object
// was decoded into: one text of it would keep the memory around that text.
type sliceRecord struct {
	name, uid, version string
	created            time.Time
	node               *nodeRecord
	reports            []*report // each once
	unsound            int       // devices that are not what they say
}

// report is what an Instance is, as nodes say. All slices that say the same share it.
// Reports of one Instance that are of several devices contradict each other: only those of one count.
type report struct {
	about
	shared bool
	// kept is set where nodes give no slots of the device: it is unschedulable, or gone. Their claims count.
	kept   bool
	nodes  int32 // whose slices list it; 0 if it is kept
	device *device
	next   *report        // the device's
	listed []*sliceRecord // the slices that list it, the oldest first
}

// about is the device that a report is of.
type about struct {
	namespace unique.Handle[string] // of the Configuration
	id        uint64                // see identity
}

// podRecord is a pod and the slots it holds.
type podRecord struct {
	Pod
	node  string
	holds []hold
	// terminating is set while the pod is being deleted: its slots will be free.
	terminating bool
	// bound is set once the API has shown the pod bound; only then is its
	// assignment beyond undoing.
	bound bool
}

// hold is one slot, once, however many of the pod's containers use it in turn.
type hold struct {
	slot slot.Name
	cl   bool
}

// nomination keeps slots for a pod, from when its victims are told to go until
// it is bound itself: without it, a pod of lower priority could take them, on
// another node, the moment that they are free.
type nomination struct {
	Pod
	node  string
	holds []hold
	// bound is set when the pod is bound, or about to be, and its node is to claim slots: see KeepUntilClaimed.
	bound bool
}
