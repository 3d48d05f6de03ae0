package ledger

import (
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// makeRoom gives an init container a slot of a device that the sidecars before it fill:
// one of them gets another one instead, for which it may have to trade. Init containers
// are in the way of these sidecars alone, not of each other or of what starts later, so
// the init containers before this one get theirs anew.
//
// An assignment may be missed where several sidecars would have to leave at once. Of a
// million drawn pods of up to four containers (TestTrades) none is.
func (f *fitting) makeRoom(n *need) bool {
	for sidecar := range n.container {
		if f.req.Containers[sidecar].Role != Sidecar {
			continue
		}
		for _, p := range f.got[sidecar] {
			if !n.servedBy(p) || f.usedBy(p.device, n.container) {
				continue
			}
			spared := []int{n.container}
			for f.work < maxWork {
				try := f.without(n, sidecar, p)
				got, short := try.again(n, sidecar, p, spared)
				f.work = try.work
				if got > n.got {
					f.Draft.changed, f.got, f.queues = try.changed, try.got, nil
					n.got = got
					return true
				}
				if short == nobody || slices.Contains(spared, short) {
					break
				}
				spared = append(spared, short)
			}
		}
	}
	return false
}

// nobody is no container.
const nobody = -1

// without returns a copy in which the sidecar lacks the pick, and no init container has
// slots of the kind but those that it has by name.
func (f *fitting) without(n *need, sidecar int, p pick) *fitting {
	try := &fitting{Draft: f.Draft.clone(), node: f.node, req: f.req, got: make([][]pick, len(f.got)), work: f.work}
	gone := map[slot.Name]*device{}
	for i, picks := range f.got {
		for _, o := range picks {
			if i == sidecar && o == p || f.req.Containers[i].Role == Init && n.servedBy(o) {
				gone[o.Slot] = o.device
				continue
			}
			try.got[i] = append(try.got[i], o)
		}
		try.work += 50 * len(picks)
	}
	for i, picks := range try.got {
		for _, o := range picks {
			delete(gone, o.Slot)
			ch := try.changed[o.device]
			ch.uses = append(ch.uses, use{i, o.Slot.Index, !o.InstanceLevel()})
		}
	}
	for s, d := range gone {
		ch := try.changed[d]
		ch.free.set(s.Index)
		ch.nfree++
		ch.addCL(f.node, -1)
	}
	return try
}

// again gives the sidecar another slot for the pick that it lacks, and the init
// containers up to the one in need theirs. It returns how many that one gets, and another
// that does not get all it needs. No device of the spared ones is filled for it.
func (f *fitting) again(n *need, sidecar int, p pick, spared []int) (got, short int) {
	own := &need{ResourceRequest: ResourceRequest{Name: n.Name, Count: p.Ordinal + 1}, container: sidecar, kind: n.kind, unique: n.unique, got: p.Ordinal}
	f.spared = spared
	if excluded := f.takeAny(own); own.got < own.Count && !f.trade(own, excluded) {
		return 0, nobody
	}
	f.spared = nil
	for i := range n.container + 1 {
		c := &f.req.Containers[i]
		at := slices.IndexFunc(c.Resources, func(r ResourceRequest) bool { return r.Name == n.Name })
		if c.Role != Init || at < 0 {
			continue
		}
		m := &need{ResourceRequest: c.Resources[at], container: i, kind: n.kind, unique: n.unique}
		f.reuse(m)
		f.takeAny(m)
		if i == n.container {
			return m.got, nobody
		}
		if m.got < m.Count {
			return 0, i
		}
	}
	return 0, nobody
}

// fills reports whether a container is a sidecar with which those before a spared one
// would fill a device that this could have, unless they have one fewer when the giver
// gives it.
func (f *fitting) fills(n *need, d *device, container, giver int) bool {
	before := func(i, spared int) bool { return i != nobody && i < spared && f.req.Containers[i].Role == Sidecar }
	return slices.ContainsFunc(f.spared, func(spared int) bool {
		if !before(container, spared) || before(giver, spared) || f.usedBy(d, spared) {
			return false
		}
		if n.unique == akriv0.UniquePerNode {
			return true // a node has one slot of it
		}
		sidecars, slots := 0, f.nfree(d)
		for _, u := range f.uses(d) {
			if u.cl {
				slots++
				if before(u.container, spared) {
					sidecars++
				}
			}
		}
		return sidecars+1 >= slots
	})
}
