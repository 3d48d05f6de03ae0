package ledger

import (
	"maps"
	"slices"
)

// Draft is a what-if view of the ledger: the ledger with some pods taken away or
// added, and with what Fit has chosen so far. It writes nothing to the ledger. What it has
// of a device stays as it was when that was first asked for. Not safe for concurrent use.
type Draft struct {
	ledger   *Ledger
	strategy Strategy
	pod      Pod    // whose view it is
	base     *Draft // what it was forked of, nil for the ledger
	changed  map[*device]*change
}

// change is a device as the draft sees it.
type change struct {
	taken    bitset
	nfree    int
	clOnNode map[string]int // added to the device's
}

// Draft returns the pod's view of the ledger, for choosing by the strategy: slots that are
// kept for others of lower priority, or for itself, are free.
func (l *Ledger) Draft(strategy Strategy, pod Pod) *Draft {
	return &Draft{ledger: l, strategy: strategy, pod: pod}
}

// Release takes a pod away: its slots become free, together with the claims
// that its node has on them, since those end with it.
func (dr *Draft) Release(uid string) { dr.move(uid, -1) }

// Return undoes Release, as long as nobody has taken the slots.
func (dr *Draft) Return(uid string) { dr.move(uid, 1) }

func (dr *Draft) move(uid string, step int) {
	p := dr.ledger.pods[uid]
	if p == nil {
		return
	}
	for _, h := range p.holds {
		d := dr.ledger.devices[h.slot.Instance]
		ch := dr.change(d)
		if h.cl {
			ch.addCL(p.node, step)
		}
		s := d.at(h.slot.Index)
		ends := d.exists() && !d.withheld && h.slot.Index < d.capacity && len(s.holders) == 1 &&
			p.owns(s.claimed()) && !s.nominee.keepsFrom(dr.pod)
		switch {
		case ends && step < 0:
			ch.free(h.slot.Index)
		case ends:
			ch.take(h.slot.Index)
		}
	}
}

// Take takes the slots that a pod is to have on the node, as far as they are free.
func (dr *Draft) Take(node string, a Assignment) {
	for _, h := range a.holds() {
		d := dr.ledger.devices[h.slot.Instance]
		if d == nil {
			continue
		}
		ch := dr.change(d)
		ch.take(h.slot.Index)
		if h.cl {
			ch.addCL(node, 1)
		}
	}
}

// Fork returns a draft that begins with what this one has. This one is not to change any
// more; then several goroutines may fork it, and each use its fork.
func (dr *Draft) Fork() *Draft {
	return &Draft{ledger: dr.ledger, strategy: dr.strategy, pod: dr.pod, base: dr}
}

// seen is how the draft sees the device, nil if as the ledger does.
func (dr *Draft) seen(d *device) *change {
	for ; dr != nil; dr = dr.base {
		if ch := dr.changed[d]; ch != nil {
			return ch
		}
	}
	return nil
}

// change is the draft's own view of the device, to be changed.
func (dr *Draft) change(d *device) *change {
	if own := dr.changed[d]; own != nil {
		return own
	}
	var ch *change
	if of := dr.seen(d); of != nil {
		ch = &change{taken: slices.Clone(of.taken), nfree: of.nfree, clOnNode: maps.Clone(of.clOnNode)}
	} else {
		ch = &change{taken: slices.Clone(d.taken), nfree: d.nfree}
		if d.exists() && !d.withheld {
			for _, s := range d.config.waiting[d] {
				if !s.nominee.keepsFrom(dr.pod) {
					ch.free(s.index)
				}
			}
		}
	}
	if dr.changed == nil {
		dr.changed = map[*device]*change{}
	}
	dr.changed[d] = ch
	return ch
}

func (dr *Draft) nfree(d *device) int {
	if ch := dr.seen(d); ch != nil {
		return ch.nfree
	}
	return d.nfree + d.keptFor(dr.pod)
}

func (dr *Draft) clOnNode(d *device, node string) int {
	n := d.clOnNode.of(node)
	if ch := dr.seen(d); ch != nil {
		n += ch.clOnNode[node]
	}
	return n
}

func (ch *change) take(index int) {
	if !ch.taken.has(index) {
		ch.taken.set(index)
		ch.nfree--
	}
}

func (ch *change) free(index int) {
	if ch.taken.has(index) {
		ch.taken.clear(index)
		ch.nfree++
	}
}

func (ch *change) addCL(node string, n int) {
	if ch.clOnNode == nil {
		ch.clOnNode = map[string]int{}
	}
	ch.clOnNode[node] += n
}
