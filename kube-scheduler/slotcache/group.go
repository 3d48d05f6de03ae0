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

// member is a pod that has found a node.
type member struct {
	node string
	req  *ledger.Request
}

// Clone implements fwk.StateData.
func (g *Group) Clone() fwk.StateData { return g }

func (g *Group) empty() bool { return g == nil || len(g.members) == 0 }

// Join gives the cycle's pod what it needs on the node beside those that have joined before, or
// says what is missing.
func (c *Cycle) Join(node string, strategy ledger.Strategy) *ledger.Shortfall {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	if _, shortfall := c.draft(node, strategy).Fit(node, c.Request); shortfall != nil {
		return shortfall
	}
	c.group.members = append(c.group.members, member{node, c.Request})
	c.group.changes++
	return nil
}

// Leave takes back what Join gave.
func (c *Cycle) Leave() {
	c.group.members = slices.DeleteFunc(c.group.members, func(m member) bool { return m.req.UID == c.Request.UID })
	c.group.changes++
}

// groupDraft is the ledger without what the cycle imagines away, and with what the group's
// members are to get, for as long as neither changes: a draft for each node would cost as much
// as nodes times members.
type groupDraft struct {
	mu            sync.Mutex
	ledger, group uint64
	draft         *ledger.Draft
}

// of returns a draft to be changed. The caller holds the slot cache's lock.
func (g *groupDraft) of(c *Cycle, strategy ledger.Strategy) *ledger.Draft {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ledgerNow, groupNow := c.cache.mu.changes, c.group.changes; g.draft == nil || g.ledger != ledgerNow ||
		g.group != groupNow {
		g.draft, g.ledger, g.group = c.cache.ledger.Draft(strategy, c.Request.Pod), ledgerNow, groupNow
		c.release(g.draft)
		for _, m := range c.group.members {
			g.draft.Reserve(m.node, m.req)
		}
	}
	return g.draft.Fork()
}

// countingLock is a lock that counts what may have been changed under it.
type countingLock struct {
	sync.RWMutex
	changes uint64
}

func (l *countingLock) Lock() {
	l.RWMutex.Lock()
	l.changes++
}
