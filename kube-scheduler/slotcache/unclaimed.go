package slotcache

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
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
	shortfall := b.keepUntilClaimed(req, node, strategy)
	if shortfall == nil {
		b.Queue.Reserved(types.UID(req.UID))
	}
	return shortfall
}

// keepUntilClaimed is KeepUntilClaimed for who holds mu.
func (b *Cache) keepUntilClaimed(req *ledger.Request, node string, strategy ledger.Strategy) *ledger.Shortfall {
	a, shortfall := b.ledger.Draft(strategy, req.Pod).Fit(node, req)
	if shortfall != nil {
		return shortfall
	}
	b.forgetNomination(req.UID)
	b.unclaimedSoFar++
	u := &unclaimed{pod: req.Pod, node: node, number: b.unclaimedSoFar}
	u.pod.Priority = math.MaxInt32 // a node does not ask who is the more important
	for _, grants := range a {
		for _, g := range grants {
			// Containers that run in turn may have the same slot.
			if !slices.ContainsFunc(u.kept, func(other assignment.Grant) bool { return other.Slot == g.Slot }) {
				u.kept = append(u.kept, g)
			}
		}
	}
	b.unclaimed[req.UID] = u
	b.letLedgerKeep(u)
	b.taken(a)
	return nil
}

// awaitsClaims reports whether slots are kept for a bound pod until its node has claimed as many.
// That begins here for a pod that waited, if another bound it, or the answer to its Binding was
// lost. The caller holds mu.
func (b *Cache) awaitsClaims(pod *v1.Pod, waited bool) bool {
	uid, node := string(pod.UID), pod.Spec.NodeName
	if u := b.unclaimed[uid]; (u == nil || u.node != node) && waited && b.ChoosesSlots(node) {
		if req, err := slotrequest.Of(pod); err == nil && req != nil {
			b.keepUntilClaimed(req, node, b.argsOf(pod).Strategy) // as far as there are any
		}
	}
	u := b.unclaimed[uid]
	if u == nil || u.node != node {
		return false
	}
	u.bound = true
	return true
}

// letLedgerKeep has the ledger keep what is kept for the pod, and nothing else. The caller holds mu.
func (b *Cache) letLedgerKeep(u *unclaimed) {
	if len(u.kept) == 0 {
		b.clearNomination(u.pod.UID)
		return
	}
	b.record(b.ledger.KeepUntilClaimed(u.pod, u.node, ledger.Assignment{"": u.kept}))
}

// claimMade ends what is kept of one slot for the pods of the node that made a claim: of the slot
// itself or, if the node chose another one, of its oldest pod. Had that other one been kept for
// another node's pod, there is a free one for that pod now. The caller holds mu.
func (b *Cache) claimMade(c *v1alpha1.SlotClaim) {
	claimed, err := c.Slot()
	if err != nil || len(b.unclaimed) == 0 || !b.ledger.ClaimCounts(c.Name) {
		return
	}
	configuration, _ := slot.SplitInstance(claimed.Instance)
	itself := func(g assignment.Grant) bool { return g.Slot == claimed }
	// serves reports whether the claim may be what the container asked for.
	serves := func(g assignment.Grant) bool { return g.Resource == configuration || g.Resource == claimed.Instance }
	var has, oldest *unclaimed // who has the slot kept, and the node's oldest pod that the claim may be for
	for _, u := range b.unclaimed {
		if slices.ContainsFunc(u.kept, itself) {
			has = u
		}
		if u.node == c.Spec.NodeName && slices.ContainsFunc(u.kept, serves) && (oldest == nil || u.number < oldest.number) {
			oldest = u
		}
	}
	switch {
	case has != nil && has.node == c.Spec.NodeName:
		has.drop(itself)
		b.letLedgerKeep(has)
	case oldest == nil: // the pod was bound before this scheduler began
	default:
		oldest.drop(serves)
		b.letLedgerKeep(oldest)
		if has == nil {
			return
		}
		resource := has.drop(itself).Resource
		b.letLedgerKeep(has)
		// No slot that is kept for any pod, this one among them.
		another := &ledger.Request{Pod: ledger.Pod{Priority: math.MaxInt32}, Containers: []ledger.ContainerRequest{{Resources: []ledger.ResourceRequest{{Name: resource, Count: 1}}}}}
		if a, shortfall := b.ledger.Draft(ledger.Spread, another.Pod).Fit(has.node, another); shortfall == nil {
			has.kept = append(has.kept, a[""]...)
			b.unclaimed[has.pod.UID] = has // though nothing else may be kept for it
			b.letLedgerKeep(has)
		}
	}
}

// drop removes the first grant of which match says so.
func (u *unclaimed) drop(match func(assignment.Grant) bool) assignment.Grant {
	at := slices.IndexFunc(u.kept, match)
	dropped := u.kept[at]
	u.kept = slices.Delete(u.kept, at, at+1)
	return dropped
}
