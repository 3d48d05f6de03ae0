package ledger

import "slices"

// maxWork bounds how many uses are looked at for one pod before trades are given up:
// some milliseconds. A pod with the most slots and resources that it may have, and
// dozens of containers, stays below.
const maxWork = 5_000_000

// offer is a pick that a container would give to another one.
type offer struct {
	to int // the container
	at int // of the giver's picks
}

// trade gives a container a slot where uniqueness keeps it from the devices that have
// free ones: another container gives it one of its own and gets another one instead,
// for which it may have to trade too. This is the search for an augmenting path of a
// matching: when there is none, no choice of slots would serve the containers so far.
// All of them run together: init containers get theirs later.
func (f *fitting) trade(n *need, free []*device) bool {
	offers := make([]*offer, len(f.got)) // by giver
	for asking := []int{n.container}; len(asking) > 0 && f.work < maxWork; asking = asking[1:] {
		to := asking[0]
		for giver, picks := range f.got {
			if giver == n.container || offers[giver] != nil {
				continue
			}
			at := slices.IndexFunc(picks, func(p pick) bool { return n.servedBy(p) && !f.usedBy(p.device, to) && !f.fills(n, p.device, to, giver) })
			if at < 0 {
				continue
			}
			offers[giver] = &offer{to, at}
			if d := f.instead(n, giver, free); d != nil {
				f.pass(n, f.take(n, d), giver, offers)
				return true
			}
			asking = append(asking, giver)
		}
	}
	return false
}

// instead returns the device that the giver can have a free slot of for the one that it
// gives away; nil if there is none.
func (f *fitting) instead(n *need, giver int, free []*device) *device {
	for _, d := range free {
		if f.nfree(d) > 0 && !f.spent(n, d) && !f.usedBy(d, giver) && !f.fills(n, d, giver, nobody) {
			return d
		}
	}
	return nil
}

// pass gives the pick to the giver, the giver's to the one that it was offered to, and
// so on to the container in need.
func (f *fitting) pass(n *need, p pick, giver int, offers []*offer) {
	for giver != n.container {
		o := offers[giver]
		old := &f.got[giver][o.at]
		given, got := f.changed[old.device], f.changed[p.device]
		given.uses = slices.DeleteFunc(given.uses, func(u use) bool { return u == use{giver, old.Slot.Index, true} })
		got.uses = append(got.uses, use{giver, p.Slot.Index, true})
		p.Slot, p.device, old.Slot, old.device = old.Slot, old.device, p.Slot, p.device
		giver = o.to
	}
	f.give(n, p)
}
