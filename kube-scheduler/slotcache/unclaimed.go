package slotcache

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// unclaimed is a pod that is, or is about to be, bound to a node which chooses slots itself and
// claims them a moment later. Until then as many slots are kept for the pod as it asks for, so
// that no other node is given a pod for them. The node may claim others: each of its claims ends
// what is kept of one slot. A scheduler that starts keeps nothing for pods that are bound by then.
type unclaimed struct {
	pod    ledger.Pod
	node   string
	number int // in the order in which they came
	kept   []assignment.Grant
	bound  bool // as the API has shown
}

// KeepUntilClaimed keeps slots for a pod that is to be bound to a node which chooses slots itself,
// until the node has claimed as many, or the pod runs or is gone. The Shortfall says that they
// are gone since they were looked for.
func (b *Cache) KeepUntilClaimed(req *ledger.Request, node string, strategy ledger.Strategy) *ledger.Shortfall {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, shortfall := b.ledger.Draft(strategy, req.Pod).Fit(node, req)
	if shortfall != nil {
		return shortfall
	}
	b.forgetNomination(req.UID)
	b.unclaimedSoFar++
	u := &unclaimed{pod: req.Pod, node: node, number: b.unclaimedSoFar}
	u.pod.Priority = math.MaxInt32 // a node does not ask who is the more important
	for _, grants := range a {
		u.kept = append(u.kept, grants...)
	}
	b.unclaimed[req.UID] = u
	b.keepUnclaimed(u)
	b.taken(a)
	b.Queue.Reserved(types.UID(req.UID))
	return nil
}

// keepUnclaimed has the ledger keep what is kept for the pod. The caller holds mu.
func (b *Cache) keepUnclaimed(u *unclaimed) {
	if len(u.kept) == 0 {
		b.clearNomination(u.pod.UID)
		return
	}
	b.record(b.ledger.Nominate(u.pod, u.node, ledger.Assignment{"": u.kept}))
}

// claimMade ends what is kept of one slot for the pods of the node that made a claim: of the slot
// itself or, if the node chose another one, of its oldest pod. Had that other one been kept for
// another node's pod, there is a free one for that pod now. The caller holds mu.
func (b *Cache) claimMade(c *v1alpha1.SlotClaim) {
	claimed, err := c.Slot()
	if err != nil || len(b.unclaimed) == 0 {
		return
	}
	configuration, _ := slot.SplitInstance(claimed.Instance)
	itself := func(g assignment.Grant) bool { return g.Slot == claimed }
	alike := func(g assignment.Grant) bool {
		name, _ := slot.SplitInstance(g.Slot.Instance)
		return name == configuration
	}
	var has, oldest *unclaimed // who has the slot kept, and the node's oldest pod that has one kept
	for _, u := range b.unclaimed {
		if slices.ContainsFunc(u.kept, itself) {
			has = u
		}
		if u.node == c.Spec.NodeName && slices.ContainsFunc(u.kept, alike) && (oldest == nil || u.number < oldest.number) {
			oldest = u
		}
	}
	switch {
	case has != nil && has.node == c.Spec.NodeName:
		has.drop(itself)
		b.keepUnclaimed(has)
	case oldest == nil: // the pod was bound before this scheduler began, or by another
	default:
		oldest.drop(alike)
		b.keepUnclaimed(oldest)
		if has == nil {
			return
		}
		resource := has.drop(itself).Resource
		one := &ledger.Request{Pod: has.pod, Containers: []ledger.ContainerRequest{{Resources: []ledger.ResourceRequest{{Name: resource, Count: 1}}}}}
		if a, shortfall := b.ledger.Draft(ledger.Spread, has.pod).Fit(has.node, one); shortfall == nil {
			has.kept = append(has.kept, a[""]...)
		}
		b.keepUnclaimed(has)
	}
}

// drop removes the first grant of which match says so.
func (u *unclaimed) drop(match func(assignment.Grant) bool) assignment.Grant {
	at := slices.IndexFunc(u.kept, match)
	dropped := u.kept[at]
	u.kept = slices.Delete(u.kept, at, at+1)
	return dropped
}
