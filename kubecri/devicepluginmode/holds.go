package devicepluginmode

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	"github.com/kubeslot/kubeslot/types/slot"
)

// asks are what the kubelet has asked for, which neither claims nor containers say. Safe for concurrent
// use.
type asks struct {
	mu sync.Mutex
	// at is when an id was last asked for, by its slot, or when the slot was first seen to be held; zero
	// when the kubelet was refused it.
	at map[slot.Name]time.Time
	// unclaimed are slots that were given while the claim of another node was in the way, which nobody
	// believes: see claims.ErrNotBelieved.
	unclaimed map[slot.Name]claims.Use
	// releasable are the slots that nobody uses, with the time in at when that was decided.
	releasable map[slot.Name]time.Time
	// choosing are Instances of which slots are about to be given.
	choosing map[string]bool
}

func newAsks() *asks {
	return &asks{at: map[slot.Name]time.Time{}, unclaimed: map[slot.Name]claims.Use{}, choosing: map[string]bool{}}
}

// choose notes that slots are about to be given, and chosen that they are, or will not be.
func (a *asks) choose(grants []deviceids.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range grants {
		a.choosing[g.Slot.Instance] = true
	}
}

func (a *asks) chosen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.choosing)
}

// asked notes that the kubelet has asked for the slots now.
func (a *asks) asked(grants []deviceids.Grant, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range grants {
		a.at[g.Slot] = now
	}
}

// refused takes it back: the slots may be released at once.
func (a *asks) refused(names []slot.Name) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		a.at[name] = time.Time{}
	}
}

// holdUnclaimed notes that a slot was given without a claim, and endUnclaimed that it is no more.
func (a *asks) holdUnclaimed(name slot.Name, use claims.Use) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unclaimed[name] = use
}

func (a *asks) endUnclaimed(name slot.Name) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unclaimed, name)
}

// since says of each slot when it was asked for, and forgets what is not held any more.
func (a *asks) since(all []held, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	there := map[slot.Name]bool{}
	for i := range all {
		h := &all[i]
		there[h.Slot] = true
		if _, known := a.at[h.Slot]; !known {
			a.at[h.Slot] = now
		}
		h.asked = a.at[h.Slot]
		if h.Claim != nil {
			delete(a.unclaimed, h.Slot)
		}
	}
	maps.DeleteFunc(a.at, func(name slot.Name, at time.Time) bool {
		return !there[name] && now.Sub(at) > patience+settling
	})
}

// gives adds the Instances of which slots are about to be given, or were without a claim.
func (a *asks) gives(instances map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(instances, a.choosing)
	for name := range a.unclaimed {
		instances[name.Instance] = true
	}
}

// release has the slots released, unless they are asked for again. It reports whether one of them was
// held without a claim, and is free now.
func (a *asks) release(decided []held) (freed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releasable = map[slot.Name]time.Time{}
	for _, h := range decided {
		a.releasable[h.Slot] = h.asked
		freed = freed || h.Claim == nil
		delete(a.unclaimed, h.Slot)
	}
	return freed
}

// keeps reports whether the slot is not to be released.
func (a *asks) keeps(name slot.Name) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, is := a.releasable[name]
	return !is || !at.Equal(a.at[name])
}

// holds are the slots that this node holds of the Instance, or of all for "". inUse is by what the
// kubelet has listed last.
func (p *Plugins) holds(instance string) []held {
	p.mu.Lock()
	listed := p.listed
	p.mu.Unlock()
	var all []held
	there := map[slot.Name]bool{}
	add := func(h claims.Holding) {
		there[h.Slot] = true
		configuration, _ := slot.SplitInstance(h.Slot.Instance)
		resource := resourceOf(configuration, h.Slot.Instance, h.Level)
		if len(listed[resource][h.Holder]) > 0 {
			h.Used, h.Lives = true, true
		}
		all = append(all, held{Holding: h, resource: resource})
	}
	for _, h := range p.claims.Holdings(instance) {
		add(h)
	}
	p.asks.mu.Lock()
	defer p.asks.mu.Unlock()
	for name, use := range p.asks.unclaimed {
		if !there[name] && (instance == "" || name.Instance == instance) {
			add(claims.Holding{Slot: name, Use: use})
		}
	}
	return all
}

// instance makes the Instance for a decision, of what is known of its device.
func (p *Plugins) instance(name string, capacity int, usable bool) *deviceids.Instance {
	in := &deviceids.Instance{Name: name, Capacity: capacity, Usable: usable, Others: map[int]string{}}
	for _, h := range p.holds(name) {
		in.Holds = append(in.Holds, deviceids.Hold{Index: h.Slot.Index, ID: h.Holder, Level: h.Level, InUse: h.Lives})
	}
	slices.SortFunc(in.Holds, func(a, b deviceids.Hold) int { return a.Index - b.Index })
	device, seen := p.seenDevice(name)
	onlyHere := seen && claims.OnlyHere(p.Node, name, device)
	for _, c := range p.others(name) {
		if s, err := c.Slot(); err == nil && (!onlyHere || c.Spec.NodeName == p.Node) {
			in.Others[s.Index] = "claimed by " + c.HeldBy()
		}
	}
	return in
}
