package ledger

import "slices"

// offer is a pick that a container would give to another one.
type offer struct {
	to int // the container
	at int // of the giver's picks
}

// maxWork bounds how many uses are looked at for one pod before trades are given up:
// some milliseconds. A pod with the most slots and resources that it may have, and
// dozens of containers, stays below.
const maxWork = 5_000_000

// trade gives a container a slot where uniqueness keeps it from the devices that have
// free ones: another container gives it one of its own and gets another one instead,
// for which it may have to trade too. This is the search for an augmenting path of a
// matching: when there is none, no choice of slots would serve the containers so far.
//
// Containers that do not run at once may have the same slot, which a matching does not
// know. For an init container this tries what moves a slot from one container to
// another; an assignment is missed where two that share a slot would both have to
// move, as may be with two init containers that have devices by name, behind a sidecar.
// When it is called, nothing that the pod has is idle while the container runs and
// could serve it.
func (f *fitting) trade(n *need, free []*device) bool {
	offers := make([]*offer, len(f.got)) // by giver
	for giver, picks := range f.got {
		at := f.available(n, giver, n.container, 0)
		if offers[giver] != nil || at < 0 {
			continue
		}
		offers[giver] = &offer{n.container, at}
		asked, ok := f.search(n, giver, offers, free)
		if ok {
			return true
		}
		if f.req.Containers[n.container].Role != Init {
			continue // nor will others find what they cannot have
		}
		for at := at; at >= 0; at = f.available(n, giver, n.container, at+1) {
			for _, last := range asked {
				if f.canShare(n, picks[at], giver, last) && !f.onTheWay(picks[at], last, giver, offers) {
					offers[giver].at = at
					f.pass(n, picks[at], last, offers)
					return true
				}
			}
		}
		clear(offers)
	}
	return false
}

// search looks for a container that can have something else for what it would give,
// from the first giver on, and if there is one makes the trade. It returns those that it
// has asked.
func (f *fitting) search(n *need, first int, offers []*offer, free []*device) (asked []int, ok bool) {
	asked = []int{first}
	for i := 0; i < len(asked) && f.work < maxWork; i++ {
		to := asked[i]
		if p, ok := f.instead(n, to, offers, free); ok {
			f.pass(n, p, to, offers)
			return nil, true
		}
		for giver := range f.got {
			if giver == n.container || offers[giver] != nil {
				continue
			}
			at := f.available(n, giver, to, 0)
			for at >= 0 && f.onTheWay(f.got[giver][at], to, n.container, offers) {
				at = f.available(n, giver, to, at+1)
			}
			if at >= 0 {
				offers[giver] = &offer{to, at}
				asked = append(asked, giver)
			}
		}
	}
	return asked, false
}

// available returns which of the giver's picks, from one of them on, another container
// could have; -1 if there is none.
func (f *fitting) available(n *need, giver, to, from int) int {
	for at, p := range f.got[giver][from:] {
		if f.work > maxWork {
			return -1
		}
		if n.servedBy(p) && !f.usedBy(p.device, to) && !f.inUse(p, to, giver) {
			return from + at
		}
	}
	return -1
}

// instead returns what the giver can have for the pick that it gives away: a slot of
// the pod's that is idle while it runs, or a free one. The slots on the way from it to
// the container in need change hands, and are not idle.
func (f *fitting) instead(n *need, giver int, offers []*offer, free []*device) (pick, bool) {
	own := &need{ResourceRequest: n.ResourceRequest, container: giver, kind: n.kind, unique: n.unique}
	for p := range f.idle(own) {
		if !f.onTheWay(p, giver, n.container, offers) {
			return p, true
		}
	}
	for _, d := range free {
		if f.nfree(d) > 0 && !f.spent(own, d) && !f.excluded(own, d) {
			return f.take(own, d), true
		}
	}
	return pick{}, false
}

// onTheWay reports whether the slot changes hands on the way from one container to
// another.
func (f *fitting) onTheWay(p pick, from, to int, offers []*offer) bool {
	for hop := from; hop != to; hop = offers[hop].to {
		if f.got[hop][offers[hop].at].Slot == p.Slot {
			return true
		}
	}
	return false
}

// canShare reports whether a container can have the same slot as the one in need, which
// the giver gives to that.
func (f *fitting) canShare(n *need, p pick, giver, container int) bool {
	return !f.req.together(n.container, container) && !f.usedBy(p.device, container) && !f.inUse(p, container, giver)
}

// pass gives the pick to the giver, the giver's to the one that it was offered to, and
// so on to the container in need.
func (f *fitting) pass(n *need, p pick, giver int, offers []*offer) {
	for giver != n.container {
		o := offers[giver]
		old := &f.got[giver][o.at]
		given, got := f.changed[old.device], f.changed[p.device]
		given.uses = slices.DeleteFunc(given.uses, func(u use) bool { return u == use{giver, old.Slot.Index} })
		got.uses = append(got.uses, use{giver, p.Slot.Index})
		p.Slot, p.device, old.Slot, old.device = old.Slot, old.device, p.Slot, p.device
		giver = o.to
	}
	f.give(n, p)
}
