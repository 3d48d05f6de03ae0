package devicepluginmode

import (
	"maps"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// What this node holds, of what the account knows.

// choose notes that slots are about to be given, and chosen that they are, or will not be.
func (a *account) choose(grants []deviceids.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range grants {
		a.choosing[g.Slot.Instance] = true
	}
}

func (a *account) chosen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.choosing)
}

// held are the Instances of which this node holds slots, or is about to.
func (a *account) held() map[string]bool {
	all := map[string]bool{}
	for _, instances := range a.heldInstances() {
		maps.Copy(all, instances)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(all, a.choosing)
	return all
}

// heldInstances returns the Instances of which this node holds slots, by Configuration.
func (a *account) heldInstances() map[string]map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]map[string]bool{}
	add := func(configuration, instance string) {
		if all[configuration] == nil {
			all[configuration] = map[string]bool{}
		}
		all[configuration][instance] = true
	}
	for configuration, instances := range a.claims {
		for instance, slots := range instances {
			for _, c := range slots {
				if a.ours(c) {
					add(configuration, instance)
					break
				}
			}
		}
	}
	for name := range a.used {
		if configuration, _ := slot.SplitInstance(name.Instance); configuration != "" {
			add(configuration, name.Instance)
		}
	}
	for name := range a.unclaimedHolds {
		configuration, _ := slot.SplitInstance(name.Instance)
		add(configuration, name.Instance)
	}
	return all
}

// holdUnclaimed notes that this node has given a slot without a claim.
func (a *account) holdUnclaimed(name slot.Name, level v1alpha1.Level, holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unclaimedHolds[name] = claim{node: a.node, level: level, holder: holder}
}

// endUnclaimed notes that nobody uses a slot any more that was given without a claim.
func (a *account) endUnclaimed(name slot.Name) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, held := a.unclaimedHolds[name]; held {
		delete(a.unclaimedHolds, name)
		delete(a.allocated, name)
	}
}

// holds returns all slots of this node, for package-level release decisions.
func (a *account) holds(listed listing) []held {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []held
	add := func(name slot.Name, c claim) {
		if a.releasing[name] {
			return
		}
		configuration, _ := slot.SplitInstance(name.Instance)
		resource := resourceOf(configuration, name.Instance, c.level)
		u, used := a.used[name]
		all = append(all, held{slot: name, claim: c, resource: resource, asked: a.allocated[name],
			inUse: len(listed[resource][c.holder]) > 0 || used && u == claims.Use{Level: c.level, Holder: c.holder}})
	}
	for _, instances := range a.claims {
		for instance, slots := range instances {
			for index, c := range slots {
				if a.ours(c) {
					add(slot.Name{Instance: instance, Index: index}, c)
				}
			}
		}
	}
	for name, c := range a.unclaimedHolds {
		add(name, c)
	}
	for name, u := range a.used { // whose claims somebody deleted, or another node has
		configuration, _ := slot.SplitInstance(name.Instance)
		c, claimed := a.claims[configuration][name.Instance][name.Index]
		if _, held := a.unclaimedHolds[name]; !held && !(claimed && a.ours(c)) {
			add(name, claim{node: a.node, level: u.Level, holder: u.Holder})
		}
	}
	return all
}

// unclaimed returns the slots that containers use and nobody has claimed, and those that
// others have claimed.
func (a *account) unclaimed() (free map[slot.Name]claims.Use, lost map[slot.Name]claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	free, lost = map[slot.Name]claims.Use{}, map[slot.Name]claim{}
	for name, u := range a.used {
		configuration, _ := slot.SplitInstance(name.Instance)
		c, claimed := a.claims[configuration][name.Instance][name.Index]
		switch {
		case a.claims[configuration] == nil: // not known
		case !claimed:
			free[name] = u
		case !a.ours(c):
			lost[name] = c
		}
	}
	return free, lost
}

// anyUnused reports whether this node has claimed slots that no container has been seen to
// use.
func (a *account) anyUnused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.allocated {
		if _, used := a.used[name]; !used {
			return true
		}
	}
	return false
}

// release marks the slots as being released, unless the kubelet has asked for them since
// the decision, and returns those that are. end is to be called afterwards.
func (a *account) release(decided []held) (going []held, end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range decided {
		if a.allocated[h.slot].Equal(h.asked) {
			a.releasing[h.slot] = true
			going = append(going, h)
		}
	}
	return going, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, h := range going {
			delete(a.releasing, h.slot)
		}
	}
}

// isReleasing reports whether claims of the Configuration are being deleted.
func (a *account) isReleasing(configuration string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.releasing {
		if c, _ := slot.SplitInstance(name.Instance); c == configuration {
			return true
		}
	}
	return false
}
