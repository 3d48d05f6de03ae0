package claims

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/kubeslot/kubeslot/types/slot"
)

// containers says which containers on this node use which slots, and which ResourceClaims that are prepared. It
// knows what the runtime said when last asked and what has been done through us since. Safe for concurrent use.
type containers struct {
	mu     sync.Mutex
	events uint64
	users  map[*user]bool
	byID   map[string]*user
	bySlot map[slot.Name]map[*user]bool
	// byInstance are the slots that bySlot has.
	byInstance map[string]map[slot.Name]bool
	// freed are slots whose last user is known to have gone, with the holders whose claims on them
	// are released without grace.
	freed map[slot.Name][]string
	// gone are the containers and sandboxes that went while the runtime was
	// being asked; it may list them still. nil at other times.
	gone map[string]bool
}

func newContainers() *containers {
	return &containers{users: map[*user]bool{}, byID: map[string]*user{}, bySlot: map[slot.Name]map[*user]bool{},
		byInstance: map[string]map[slot.Name]bool{}, freed: map[slot.Name][]string{}}
}

// begin enters a container that is about to be created. It refuses a slot that
// another pod's container uses here.
func (c *containers) begin(u *user) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(u.slots), compareSlots) {
		for other := range c.bySlot[name] {
			if other.pod.UID != u.pod.UID {
				return Refusef("slot %s is used by %s on this node; the slot is free when that container is gone, and "+
					"creation is retried", name, other)
			}
		}
	}
	c.add(u)
	return nil
}

// created gives a container its id.
func (c *containers) created(u *user, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if listed := c.byID[id]; listed != nil { // the runtime was asked in between
		c.drop(listed)
	}
	if !c.users[u] {
		return
	}
	u.id = id
	c.events++
	u.born = c.events
	c.byID[id] = u
	for name := range u.slots {
		delete(c.freed, name)
	}
}

// failed takes out a container that was not created. Slots that nobody else uses
// are freed if they are among taken.
func (c *containers) failed(u *user, taken []slot.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(u)
	for _, name := range taken {
		c.freeIfUnused(name, u.slots[name].Holder)
	}
}

// remove takes out the container of the id, which was removed, or those of the sandbox of the id, which was
// stopped: they cannot start again. It returns their slots.
func (c *containers) remove(id string) []slot.Name {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		c.gone[id] = true
	}
	var names []slot.Name
	for _, u := range c.byID {
		if u.id == id || u.sandbox == id {
			names = append(names, c.free(u)...)
		}
	}
	return names
}

// freeUnused marks as free the slots that no container uses, of a pod that is
// gone, and returns their names: they were claimed before there was a container.
func (c *containers) freeUnused(pod string, slots []slot.Name) []slot.Name {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []slot.Name
	for _, name := range slots {
		if c.freeIfUnused(name, pod) {
			names = append(names, name)
		}
	}
	return names
}

// replace has a ResourceClaim use its slots and no others, and returns those that it used before.
func (c *containers) replace(u *user) (freed []slot.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.byID[u.id]; before != nil {
		freed = c.free(before)
	}
	if len(u.slots) > 0 {
		c.enter(u)
	}
	return freed
}

// wanted notes that the holder, which may have been found gone, holds the slot.
func (c *containers) wanted(name slot.Name, holder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed[name] = slices.DeleteFunc(c.freed[name], func(gone string) bool { return gone == holder })
	if len(c.freed[name]) == 0 {
		delete(c.freed, name)
	}
}

// startSync begins to ask the runtime, and returns what to give to finishSync.
func (c *containers) startSync() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = map[string]bool{}
	return c.events
}

// abandonSync ends a sync that failed.
func (c *containers) abandonSync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = nil
}

// finishSync makes the account agree with what the runtime listed. Containers created
// or removed since startSync are as they were seen here.
func (c *containers) finishSync(since uint64, listed []*user) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := make(map[string]bool, len(listed))
	for _, u := range listed {
		if c.gone[u.id] || c.gone[u.sandbox] {
			continue
		}
		there[u.id] = true
		if known := c.byID[u.id]; known != nil {
			known.exited = u.exited
		} else {
			c.enter(u)
		}
	}
	for u := range c.users {
		if u.id != "" && u.claim == nil && !there[u.id] && u.born <= since {
			c.free(u)
		}
	}
	c.gone = nil
}

// ended notes that a container was stopped. It may still be there.
func (c *containers) ended(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.byID[id]; u != nil {
		u.ended = true
	}
}

// stopping notes that a container is being stopped, or is no more. It reports whether that was news.
func (c *containers) stopping(id string, now bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.byID[id]
	if u == nil || u.stopping == now {
		return false
	}
	u.stopping = now
	return true
}

// uses reports whether a container uses the slot or is being created for it.
func (c *containers) uses(name slot.Name) bool {
	u := c.use(name)
	return u.busy || len(u.held) > 0
}

// use returns how a slot is used.
func (c *containers) use(name slot.Name) use {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := use{freed: slices.Clone(c.freed[name])}
	for u := range c.bySlot[name] {
		switch {
		case u.id == "":
			s.busy = true
		case !u.ended:
			s.held = append(s.held, *u)
		}
	}
	slices.SortFunc(s.held, func(a, b user) int {
		return cmp.Or(cmp.Compare(a.slots[name].Holder, b.slots[name].Holder), cmp.Compare(a.name, b.name))
	})
	return s
}

// usedAs reports whether a container uses the slot, and holds it so, and whether one of these has not exited.
func (c *containers) usedAs(name slot.Name, as Use) (used, lives bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for u := range c.bySlot[name] {
		if u.slots[name] == as {
			used, lives = true, lives || !u.exited
		}
	}
	return used, lives
}

// usersOf returns who uses the slots of the Instance, or of all for "".
func (c *containers) usersOf(instance string) map[slot.Name]user {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := map[string]map[slot.Name]bool{instance: c.byInstance[instance]}
	if instance == "" {
		of = c.byInstance
	}
	users := map[slot.Name]user{}
	for _, names := range of {
		for name := range names {
			for u := range c.bySlot[name] {
				users[name] = *u
			}
		}
	}
	return users
}

// inUse returns how many slots are in use, by the name of their Configuration.
func (c *containers) inUse() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := map[string]int{}
	for name := range c.bySlot {
		configuration, _ := slot.SplitInstance(name.Instance)
		used[configuration]++
	}
	return used
}

// pending returns how many slots were freed and are claimed still.
func (c *containers) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.freed)
}

// has reports whether the id is that of a container that uses slots, or of its
// sandbox.
func (c *containers) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[id] != nil {
		return true
	}
	for u := range c.users {
		if u.sandbox == id {
			return true
		}
	}
	return false
}

// settled forgets that a slot was freed: its claim is gone.
func (c *containers) settled(name slot.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.freed, name)
}

// slots returns those that are used here or were.
func (c *containers) slots() []slot.Name {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(c.bySlot)), maps.Keys(c.freed))
}

// enter adds a user that has its id.
func (c *containers) enter(u *user) {
	c.add(u)
	c.byID[u.id] = u
	for name := range u.slots {
		delete(c.freed, name)
	}
}

func (c *containers) add(u *user) {
	c.events++
	u.born = c.events
	c.users[u] = true
	for name := range u.slots {
		if c.bySlot[name] == nil {
			c.bySlot[name] = map[*user]bool{}
		}
		c.bySlot[name][u] = true
		if c.byInstance[name.Instance] == nil {
			c.byInstance[name.Instance] = map[slot.Name]bool{}
		}
		c.byInstance[name.Instance][name] = true
	}
}

func (c *containers) drop(u *user) {
	delete(c.users, u)
	if u.id != "" && c.byID[u.id] == u {
		delete(c.byID, u.id)
	}
	for name := range u.slots {
		delete(c.bySlot[name], u)
		if len(c.bySlot[name]) == 0 {
			delete(c.bySlot, name)
			delete(c.byInstance[name.Instance], name)
			if len(c.byInstance[name.Instance]) == 0 {
				delete(c.byInstance, name.Instance)
			}
		}
	}
}

// free drops a user that is known to have gone.
func (c *containers) free(u *user) []slot.Name {
	c.drop(u)
	names := slices.Collect(maps.Keys(u.slots))
	for _, name := range names {
		c.freeIfUnused(name, u.slots[name].Holder)
	}
	return names
}

// freeIfUnused frees a slot of the holder's claim, unless a container uses it.
func (c *containers) freeIfUnused(name slot.Name, holder string) bool {
	if len(c.bySlot[name]) > 0 {
		return false
	}
	if !slices.Contains(c.freed[name], holder) {
		c.freed[name] = append(c.freed[name], holder)
	}
	return true
}

func compareSlots(a, b slot.Name) int {
	return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Index, b.Index))
}
