package slotcache

import (
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// Group is what the pods of a PodGroup are to get that the scheduler finds nodes for in one
// cycle. The ledger knows nothing of it: it gives the slots to the pods one by one, once all of
// them have a node. So a group that fails leaves nothing behind, and
// activates no pod. Only the scheduling loop changes it.
type Group struct {
	members []member
	changes uint64
}

// member is a pod that has found a node, and the slots that it is to have there.
type member struct {
	uid, node string
	slots     ledger.Assignment
}

// Clone implements fwk.StateData.
func (g *Group) Clone() fwk.StateData { return g }

func (g *Group) empty() bool { return g == nil || len(g.members) == 0 }

// Join gives the cycle's pod what it needs on the node beside those that have joined before, or
// says what is missing. Assume is to get what it gave: the pods of a composite group are reserved in any order.
func (c *Cycle) Join(node string, strategy ledger.Strategy) *ledger.Shortfall {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	a, shortfall := c.draft(node, strategy).Fit(node, c.Request.WithNewBudget())
	if shortfall == nil {
		c.group.members = append(c.group.members, member{c.Request.UID, node, a})
		c.group.changes++
		c.Joined = a
	}
	return shortfall
}

// Leave takes back what Join gave.
func (c *Cycle) Leave() {
	c.group.members = slices.DeleteFunc(c.group.members, func(m member) bool { return m.uid == c.Request.UID })
	c.group.changes++
}

// drafts are what a cycle chooses slots in. They are kept from one node to the next, and change with what the
// cycle imagines: to make them anew each time would cost as much as nodes times pods. Of pods and devices that they
// have seen they know no later change, like the scheduler's snapshot; who takes slots makes sure of them.
type drafts struct {
	mu    sync.Mutex
	base  *ledger.Draft // without what the cycle imagines away; nil for none
	whole *ledger.Draft // and with what the group's members are to get; nil for none
	group uint64        // the group's changes that it knows of
}

// of returns a draft to be changed. The caller holds the slot cache's lock.
func (d *drafts) of(c *Cycle, strategy ledger.Strategy) *ledger.Draft {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.base == nil {
		d.base = c.cache.ledger.Draft(strategy, c.Request.Pod)
		for uid := range c.released {
			d.base.Release(uid)
		}
	}
	if c.group.empty() {
		return d.base.Fork()
	}
	if d.whole == nil || d.group != c.group.changes {
		d.whole, d.group = d.base.Fork(), c.group.changes
		for _, m := range c.group.members {
			if c.cache.ledger.Nominated(m.uid) == "" { // else it has those that are kept for it
				d.whole.Take(m.node, m.slots)
			}
		}
	}
	return d.whole.Fork()
}

// follow has the drafts follow what the cycle imagines of a pod. No draft that was returned may be in use.
func (d *drafts) follow(c *Cycle, uid string, imagine func(*ledger.Draft, string)) {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	if d.whole = nil; d.base != nil {
		imagine(d.base, uid)
	}
}
