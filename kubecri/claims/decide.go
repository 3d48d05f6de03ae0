package claims

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// remakeInterval is at least between two times that a claim is made again. Somebody
// may delete it each time: the controller deletes claims that do not count.
const remakeInterval = 10 * time.Second

// use says how containers, and ResourceClaims, of this node use a slot.
type use struct {
	held []user // created containers that can run, or run again, and ResourceClaims that are prepared
	busy bool   // a container that uses it is being created
	// freed are the holders whose containers used the slot last and are known to have gone.
	freed []string
}

// view is all that is known of a slot.
type view struct {
	slot  slot.Name
	claim *v1alpha1.SlotClaim // this node's, nil for none
	use   use
	// entitled is how it is to be held also without a container.
	entitled []Use
	// capacity is the number of the Instance's slots, 0 while no claim can be made.
	capacity int
}

// memory is what is remembered of a slot from one decision to the next.
type memory struct {
	orphan types.UID // the claim without a container, and since when it is known
	since  time.Time
	remade time.Time // when a claim was last made again
	lost   types.UID // the claim of another that an Event was recorded of
}

// decision is what is to be done about a slot's claim, in this order.
type decision struct {
	remove  bool
	remake  *user         // the container to claim for
	settled bool          // the slot was freed, and then the claim is gone
	recheck time.Duration // when to decide again; 0 for not
	memory  memory
}

// decide compares a slot's claim with its use on the node. A claim without a
// container is released: at once when the container is known to have gone, and
// after grace otherwise, for it may be about to come: a create that another life of
// this process began, or a pod whose scheduler claims before it binds. While a pod
// here is entitled to use the slot, the claim stays. A container without a claim gets it
// again.
func decide(v view, known memory, now time.Time, grace time.Duration) decision {
	held, c := v.use.held, v.claim
	switch {
	case v.use.busy:
		return decision{memory: known}
	case c != nil && c.DeletionTimestamp != nil:
		return decision{memory: known} // the informer says when it is gone
	}
	d := decision{settled: len(v.use.freed) > 0 && len(held) == 0}
	if len(held) > 0 {
		d.memory = memory{remade: known.remade, lost: known.lost}
		if c != nil && slices.ContainsFunc(held, func(u user) bool { return u.slots[v.slot] == useOf(c) }) {
			d.memory.lost = ""
			return d
		}
		// Of another pod, which has no container here, or at another level. A ResourceClaim may be about to be
		// prepared.
		d.remove = c != nil && !c.Spec.ByDRA()
		switch wait := remakeInterval - now.Sub(known.remade); {
		case v.slot.Index >= v.capacity: // the API server would have none of it
		case wait > 0:
			d.recheck = wait
		default:
			d.remake = &held[0]
		}
		return d
	}
	switch {
	case c == nil:
	case slices.Contains(v.use.freed, c.Spec.Holder):
		d.remove = true
	case slices.Contains(v.entitled, useOf(c)):
		// Its scheduler claimed it; the containers are to come, however long an image takes.
	default:
		since := now
		if known.orphan == c.UID {
			since = known.since
		}
		if left := grace - now.Sub(since); left > 0 {
			d.recheck, d.memory = left, memory{orphan: c.UID, since: since}
		} else {
			d.remove = true
		}
	}
	return d
}
