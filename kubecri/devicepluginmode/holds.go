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
	// of are those of slots that are held, or were lately.
	of map[slot.Name]ask
	// unclaimed are slots that were given while the claim of another node was in the way, which nobody
	// believes: see claims.ErrNotBelieved.
	unclaimed map[slot.Name]claims.Use
	// releasable are the slots that nobody uses, with when they were asked for when that was decided.
	releasable map[slot.Name]time.Time
	// choosing are Instances of which slots are about to be given.
	choosing map[string]bool
}

// ask is what the kubelet has asked of one slot.
type ask struct {
	// at is when its id was last asked for, or when the slot was first seen to be held; zero when the kubelet was
	// refused it.
	at   time.Time
	held time.Time // when the slot was last known to be held
	// offered is true from when the id was proposed to the kubelet until it asks for it: no container can have
	// the slot yet.
	offered bool
}

// remembered is how long after a slot was held a container may be there that is not known: a runtime without events
// is asked every refreshEvery.
const remembered = time.Minute

func newAsks() *asks {
	return &asks{of: map[slot.Name]ask{}, unclaimed: map[slot.Name]claims.Use{}, choosing: map[string]bool{}}
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

// asked notes that the kubelet has asked for the slots now, and offer that their ids were only proposed to it.
func (a *asks) asked(grants []deviceids.Grant, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range grants {
		a.of[g.Slot] = ask{at: now, held: now}
	}
}

func (a *asks) offer(grants []deviceids.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range grants {
		of := a.of[g.Slot]
		of.offered = true
		a.of[g.Slot] = of
	}
}

// lately reports whether one of the slots is held, or was lately, and a container may have it.
func (a *asks) lately(grants []deviceids.Grant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(grants, func(g deviceids.Grant) bool {
		of, known := a.of[g.Slot]
		return (g.Held || known) && !of.offered
	})
}

// refused takes it back: the slots may be released at once.
func (a *asks) refused(names []slot.Name) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		of := a.of[name]
		of.at = time.Time{}
		a.of[name] = of
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

// since says of each slot when it was asked for, and forgets what has not been held for long.
func (a *asks) since(all []held, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range all {
		h := &all[i]
		of, known := a.of[h.Slot]
		if !known {
			of.at = now
		}
		of.held, h.asked = now, of.at
		a.of[h.Slot] = of
		if h.Claim != nil {
			delete(a.unclaimed, h.Slot)
		}
	}
	maps.DeleteFunc(a.of, func(_ slot.Name, of ask) bool { return now.Sub(of.held) > remembered })
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
	return !is || !at.Equal(a.of[name].at)
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
