package claims

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Pod identifies a pod. Two pods of one name, one after the other, have
// different UIDs.
type Pod struct {
	Namespace, Name, UID string
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// user is a container and the slots that it uses. Its id is "" while it is
// being created.
type user struct {
	id      string
	sandbox string
	pod     Pod
	name    string
	slots   map[slot.Name]slot.Usage
	born    uint64 // event at which it was entered or got its id
}

// book says which containers on this node use which slots. It knows what the
// runtime said when last asked and what has been done through us since. Safe for
// concurrent use.
type book struct {
	mu     sync.Mutex
	known  bool // the runtime has been asked
	events uint64
	users  map[*user]bool
	byID   map[string]*user
	bySlot map[slot.Name]map[*user]bool
	// freed are slots whose last user is known to have gone: their claims are
	// released without grace.
	freed map[slot.Name]bool
	// emptied is closed when freed becomes empty; nil while nobody waits for that.
	emptied chan struct{}
	// gone are the containers and sandboxes that went while the runtime was
	// being asked; it may list them still. nil at other times.
	gone map[string]bool
}

func newBook() *book {
	return &book{users: map[*user]bool{}, byID: map[string]*user{}, bySlot: map[slot.Name]map[*user]bool{}, freed: map[slot.Name]bool{}}
}

// begin enters a container that is about to be created. It refuses a slot that
// another pod's container uses here.
func (b *book) begin(u *user) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(u.slots), compareSlots) {
		for other := range b.bySlot[name] {
			if other.pod.UID != u.pod.UID {
				return Refusef("slot %s is used by container %q of pod %s on this node; the slot is free when that container is gone, and creation is retried",
					name, other.name, other.pod)
			}
		}
	}
	b.add(u)
	return nil
}

// created gives a container its id.
func (b *book) created(u *user, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if listed := b.byID[id]; listed != nil { // the runtime was asked in between
		b.drop(listed)
	}
	if !b.users[u] {
		return
	}
	u.id = id
	b.events++
	u.born = b.events
	b.byID[id] = u
	for name := range u.slots {
		b.unfree(name)
	}
}

// failed takes out a container that was not created. Slots that nobody else uses
// are freed if they are among taken.
func (b *book) failed(u *user, taken []slot.Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(u)
	for _, name := range taken {
		if len(b.bySlot[name]) == 0 {
			b.freed[name] = true
		}
	}
}

// removeContainer takes out a removed container and returns its slots.
func (b *book) removeContainer(id string) []slot.Name {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remember(id)
	if u := b.byID[id]; u != nil {
		return b.free(u)
	}
	return nil
}

// stopSandbox takes out the containers of a stopped sandbox, which cannot start
// again, and returns their slots.
func (b *book) stopSandbox(id string) []slot.Name {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remember(id)
	var names []slot.Name
	for u := range b.users {
		if u.id != "" && u.sandbox == id {
			names = append(names, b.free(u)...)
		}
	}
	return names
}

// freeUnused marks as free the slots that no container uses, of a pod that is
// gone, and returns their names: they were claimed before there was a container.
func (b *book) freeUnused(slots []slot.Name) []slot.Name {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []slot.Name
	for _, name := range slots {
		if len(b.bySlot[name]) == 0 {
			b.freed[name] = true
			names = append(names, name)
		}
	}
	return names
}

// startSync begins to ask the runtime, and returns what to give to finishSync.
func (b *book) startSync() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = map[string]bool{}
	return b.events
}

// abandonSync ends a sync that failed.
func (b *book) abandonSync() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = nil
}

// finishSync makes the book agree with what the runtime listed. Containers created or removed since startSync are as they were
// seen here. It returns the slots whose users changed.
func (b *book) finishSync(since uint64, listed []*user) []slot.Name {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[string]bool, len(listed))
	var changed []slot.Name
	for _, u := range listed {
		if b.gone[u.id] || b.gone[u.sandbox] {
			continue
		}
		there[u.id] = true
		if b.byID[u.id] == nil {
			b.add(u)
			b.byID[u.id] = u
			for name := range u.slots {
				b.unfree(name)
				changed = append(changed, name)
			}
		}
	}
	for u := range b.users {
		if u.id != "" && !there[u.id] && u.born <= since {
			changed = append(changed, b.free(u)...)
		}
	}
	b.gone = nil
	b.known = true
	return changed
}

func (b *book) isKnown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known
}

// uses returns how the Instance's slots are used.
func (b *book) uses(instance string) uses {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := uses{held: map[slot.Name][]holder{}, busy: map[slot.Name]bool{}, freed: map[slot.Name]bool{}}
	for name, users := range b.bySlot {
		if name.Instance != instance {
			continue
		}
		for u := range users {
			if u.id == "" {
				s.busy[name] = true
				continue
			}
			s.held[name] = append(s.held[name], holder{usage: u.slots[name], pod: u.pod, container: u.name})
		}
		slices.SortFunc(s.held[name], func(a, b holder) int {
			return cmp.Or(cmp.Compare(a.usage.String(), b.usage.String()), cmp.Compare(a.container, b.container))
		})
	}
	for name := range b.freed {
		if name.Instance == instance {
			s.freed[name] = true
		}
	}
	return s
}

// inUse returns how many slots are in use.
func (b *book) inUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.bySlot)
}

// pending returns how many slots were freed and are claimed still.
func (b *book) pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.freed)
}

// has reports whether the id is that of a container that uses slots, or of its
// sandbox.
func (b *book) has(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[id] != nil {
		return true
	}
	for u := range b.users {
		if u.sandbox == id {
			return true
		}
	}
	return false
}

// whenSettled returns what is closed once no slot is freed and claimed still.
func (b *book) whenSettled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.emptied == nil {
		b.emptied = make(chan struct{})
	}
	settled := b.emptied
	b.tellIfEmpty()
	return settled
}

func (b *book) unfree(name slot.Name) {
	delete(b.freed, name)
	b.tellIfEmpty()
}

func (b *book) tellIfEmpty() {
	if len(b.freed) == 0 && b.emptied != nil {
		close(b.emptied)
		b.emptied = nil
	}
}

// settled forgets that slots were freed: their claims are gone.
func (b *book) settled(names []slot.Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		b.unfree(name)
	}
}

// knows reports whether the Instance is used here or was.
func (b *book) knows(instance string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.bySlot {
		if name.Instance == instance {
			return true
		}
	}
	for name := range b.freed {
		if name.Instance == instance {
			return true
		}
	}
	return false
}

// instances returns the names of the Instances that are used here or were.
func (b *book) instances() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := map[string]bool{}
	for name := range b.bySlot {
		names[name.Instance] = true
	}
	for name := range b.freed {
		names[name.Instance] = true
	}
	return names
}

func (b *book) add(u *user) {
	b.events++
	u.born = b.events
	b.users[u] = true
	for name := range u.slots {
		if b.bySlot[name] == nil {
			b.bySlot[name] = map[*user]bool{}
		}
		b.bySlot[name][u] = true
	}
}

func (b *book) drop(u *user) {
	delete(b.users, u)
	if u.id != "" && b.byID[u.id] == u {
		delete(b.byID, u.id)
	}
	for name := range u.slots {
		delete(b.bySlot[name], u)
		if len(b.bySlot[name]) == 0 {
			delete(b.bySlot, name)
		}
	}
}

// free drops a user that is known to have gone.
func (b *book) free(u *user) []slot.Name {
	b.drop(u)
	names := slices.Collect(maps.Keys(u.slots))
	for _, name := range names {
		if len(b.bySlot[name]) == 0 {
			b.freed[name] = true
		}
	}
	return names
}

func (b *book) remember(id string) {
	if b.gone != nil {
		b.gone[id] = true
	}
}

func compareSlots(a, b slot.Name) int {
	return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Index, b.Index))
}
