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
func (c *Cycle) Join(node string) *ledger.Shortfall {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	a, shortfall := c.draft(node).Fit(node, c.Request.WithNewBudget())
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

// whole is a draft that has what the group's members are to get.
type whole struct {
	mu      sync.Mutex
	draft   *ledger.Draft // nil for none
	changes uint64        // the group's that it knows of
}

// draftOf returns the draft of the cycle's group. The caller holds the slot cache's lock.
func (w *whole) draftOf(c *Cycle) *ledger.Draft {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draft == nil || w.changes != c.group.changes {
		w.draft, w.changes = c.base.Fork(), c.group.changes
		for _, m := range c.group.members {
			if c.cache.ledger.Nominated(m.uid) == "" { // else it has those that are kept for it
				w.draft.Take(m.node, m.slots)
			}
		}
	}
	return w.draft
}
