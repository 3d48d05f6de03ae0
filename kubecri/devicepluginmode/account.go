package devicepluginmode

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// claim is what matters of a SlotClaim.
type claim struct {
	uid     types.UID
	version uint64 // resourceVersion
	node    string
	level   v1alpha1.Level
	holder  string
	pod     string // namespace/name; "" when the claim does not say, as ours
	shown   string // the pod that its v1alpha1.PodAnnotation names
}

func claimOf(c *v1alpha1.SlotClaim) claim {
	version, _ := strconv.ParseUint(c.ResourceVersion, 10, 64)
	of := claim{uid: c.UID, version: version, node: c.Spec.NodeName, level: c.Spec.Level, holder: c.Spec.Holder,
		shown: c.Annotations[v1alpha1.PodAnnotation]}
	if c.Spec.Pod != nil {
		of.pod = c.Spec.Pod.Namespace + "/" + c.Spec.Pod.Name
	}
	return of
}

// String says whose it is.
func (c claim) String() string {
	if pod := cmp.Or(c.pod, c.shown); pod != "" {
		return fmt.Sprintf("claimed by pod %s on node %s", pod, c.node)
	}
	return fmt.Sprintf("claimed by device %q of node %s", c.holder, c.node)
}

// account knows who has which slot of the Configurations that this node serves: all
// claims, with this process's own writes before the watch shows them, and what containers
// use. Safe for concurrent use.
type account struct {
	node string
	now  func() time.Time

	mu sync.Mutex
	// claims are by Configuration, Instance and index.
	claims map[string]map[string]map[int]claim
	// deleted are the claims that are gone, and since when.
	deleted map[types.UID]time.Time
	// used are the slots of containers, as last seen, and usedOf the same by Instance.
	used   map[slot.Name]claims.Use
	usedOf map[string][]slot.Name
	// allocated is when an id of this node was last asked for, by its slot, or when the
	// slot was first seen to be this node's.
	allocated map[slot.Name]time.Time
	// releasing are this node's claims that are being deleted.
	releasing map[slot.Name]bool
	// choosing are Instances of which slots are about to be given.
	choosing map[string]bool
	// unclaimedHolds are slots that this node has given while the claim of another node was in
	// the way, which nobody believes: see onlyHere. They say what this node's claims would.
	unclaimedHolds map[slot.Name]claim
}

func newAccount(node string, now func() time.Time) *account {
	return &account{node: node, now: now, claims: map[string]map[string]map[int]claim{}, deleted: map[types.UID]time.Time{},
		used: map[slot.Name]claims.Use{}, allocated: map[slot.Name]time.Time{}, releasing: map[slot.Name]bool{},
		choosing:       map[string]bool{},
		unclaimedHolds: map[slot.Name]claim{}}
}

// ours reports whether a claim is one that this mode made for this node. One that names a
// pod is of another mode.
func (a *account) ours(c claim) bool { return c.node == a.node && c.pod == "" }

// set enters a claim as the API server has it.
func (a *account) set(name slot.Name, c claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(name, c)
}

// see enters a claim as the API server has returned it.
func (a *account) see(name slot.Name, c *v1alpha1.SlotClaim) { a.set(name, claimOf(c)) }

func (a *account) enter(name slot.Name, c claim) {
	if _, gone := a.deleted[c.uid]; gone {
		return
	}
	configuration, _ := slot.SplitInstance(name.Instance)
	instances := a.claims[configuration]
	if instances == nil {
		instances = map[string]map[int]claim{}
		a.claims[configuration] = instances
	}
	slots := instances[name.Instance]
	if slots == nil {
		slots = map[int]claim{}
		instances[name.Instance] = slots
	}
	if before, ok := slots[name.Index]; ok && before.uid != c.uid && before.version > c.version {
		return // older news
	}
	slots[name.Index] = c
	if !a.ours(c) {
		return
	}
	delete(a.unclaimedHolds, name)
	if _, known := a.allocated[name]; !known {
		a.allocated[name] = a.now()
	}
}

// gone drops a claim that does not exist any more, as the API server has shown or this process has
// deleted it. What is still on its way, of the watch or an answer to a Get, does not bring it back.
func (a *account) gone(name slot.Name, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	maps.DeleteFunc(a.deleted, func(_ types.UID, at time.Time) bool { return now.Sub(at) > ownwrites.ShownWithin })
	a.deleted[uid] = now
	a.drop(name, uid)
}

func (a *account) drop(name slot.Name, uid types.UID) {
	configuration, _ := slot.SplitInstance(name.Instance)
	slots := a.claims[configuration][name.Instance]
	if c, ok := slots[name.Index]; !ok || c.uid != uid {
		return
	}
	delete(slots, name.Index)
	if len(slots) == 0 {
		delete(a.claims[configuration], name.Instance)
	}
	_, used := a.used[name]
	if _, unclaimed := a.unclaimedHolds[name]; !used && !unclaimed {
		delete(a.allocated, name)
	}
}

// replace makes the Configuration's claims those that were listed at a version; claims
// that are newer stay.
func (a *account) replace(configuration string, listed map[slot.Name]claim, version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claims[configuration] == nil { // known from now on, also when it has none
		a.claims[configuration] = map[string]map[int]claim{}
	}
	for instance, slots := range a.claims[configuration] {
		for index, c := range slots {
			name := slot.Name{Instance: instance, Index: index}
			if now, ok := listed[name]; c.version <= version && (!ok || now.uid != c.uid) {
				a.drop(name, c.uid)
			}
		}
	}
	for name, c := range listed {
		a.enter(name, c)
	}
}

// forget drops a Configuration whose claims are no longer watched.
func (a *account) forget(configuration string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claims, configuration)
	maps.DeleteFunc(a.allocated, func(name slot.Name, _ time.Time) bool {
		of, _ := slot.SplitInstance(name.Instance)
		_, used := a.used[name]
		return of == configuration && !used
	})
}

// claim returns this node's claim of the slot.
func (a *account) claim(name slot.Name) (claim, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	configuration, _ := slot.SplitInstance(name.Instance)
	c, ok := a.claims[configuration][name.Instance][name.Index]
	return c, ok && a.ours(c)
}

// holder returns whoever has the slot.
func (a *account) holder(name slot.Name) (claim, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	configuration, _ := slot.SplitInstance(name.Instance)
	c, ok := a.claims[configuration][name.Instance][name.Index]
	return c, ok
}

// asked notes that the kubelet has asked for the slots now.
func (a *account) asked(grants []deviceids.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range grants {
		a.allocated[g.Slot] = a.now()
	}
}

// notAsked takes it back: the slots may be released at once.
func (a *account) notAsked(names []slot.Name) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		a.allocated[name] = time.Time{}
	}
}

// setUsed notes what containers use.
func (a *account) setUsed(used map[slot.Name]claims.Use) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = !maps.Equal(a.used, used)
	a.used, a.usedOf = used, map[string][]slot.Name{}
	for name := range used {
		a.usedOf[name.Instance] = append(a.usedOf[name.Instance], name)
	}
	return changed
}

// instance makes the Instance for a decision, of what is known of its device. onlyHere is
// set where no other node can have it.
func (a *account) instance(name string, capacity int, usable, onlyHere bool) *deviceids.Instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := &deviceids.Instance{Name: name, Capacity: capacity, Usable: usable, Others: map[int]string{}}
	configuration, _ := slot.SplitInstance(name)
	for index, c := range a.claims[configuration][name] {
		switch {
		case a.releasing[slot.Name{Instance: name, Index: index}]:
			in.Others[index] = "being released by this node"
			if a.ours(c) { // it is another's as soon as our claim is gone
				in.Releasing = append(in.Releasing, deviceids.Hold{Index: index, ID: c.holder, Level: c.level})
			}
		case a.ours(c):
			in.Holds = append(in.Holds, deviceids.Hold{Index: index, ID: c.holder, Level: c.level})
		case onlyHere && c.node != a.node: // counts for nobody
		default:
			in.Others[index] = c.String()
		}
	}
	hold := func(h deviceids.Hold) {
		if !slices.ContainsFunc(in.Holds, func(other deviceids.Hold) bool { return other.Index == h.Index }) {
			in.Holds = append(in.Holds, h)
		}
	}
	for held, c := range a.unclaimedHolds {
		if held.Instance == name {
			hold(deviceids.Hold{Index: held.Index, ID: c.holder, Level: c.level})
		}
	}
	for _, held := range a.usedOf[name] { // whose claims somebody deleted
		u := a.used[held]
		hold(deviceids.Hold{Index: held.Index, ID: u.Holder, Level: u.Level})
	}
	slices.SortFunc(in.Holds, func(a, b deviceids.Hold) int { return a.Index - b.Index })
	return in
}
