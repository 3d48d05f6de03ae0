package ledger

import (
	"slices"
	"strings"

	"github.com/google/btree"
)

// most free slots first, then by name: Spread ascends, Pack walks back up from
// the fewest.
func byFree(a, b *device) bool {
	if a.nfree != b.nfree {
		return a.nfree > b.nfree
	}
	return a.name < b.name
}

const btreeDegree = 16

// groupFor returns the kind's group of exactly these nodes, which it makes if
// needed. Nodes are sorted and unique.
func (k *kind) groupFor(nodes []string) *group {
	key := strings.Join(nodes, "\x00")
	if g := k.groups[key]; g != nil {
		return g
	}
	g := &group{key: key, nodes: nodes, order: btree.NewWithFreeListG(btreeDegree, byFree, k.spare)}
	k.groups[key] = g
	k.version++
	for _, n := range nodes {
		r := k.byNode[n]
		if len(nodes) == 1 {
			r.own = g
		} else {
			r.shared = append(r.shared, g)
		}
		k.byNode[n] = r
	}
	return g
}

func (k *kind) dropIfEmpty(g *group) {
	if g.members > 0 {
		return
	}
	delete(k.groups, g.key)
	k.version++
	for _, n := range g.nodes {
		r := k.byNode[n]
		if r.own == g {
			r.own = nil
		}
		r.shared = slices.DeleteFunc(r.shared, func(o *group) bool { return o == g })
		if r.own == nil && len(r.shared) == 0 {
			delete(k.byNode, n)
		} else {
			k.byNode[n] = r
		}
	}
}

// groups yields the groups that the node is in.
func (r *reach) groups(yield func(*group) bool) {
	if r.own != nil && !yield(r.own) {
		return
	}
	for _, g := range r.shared {
		if !yield(g) {
			return
		}
	}
}

// list puts a device with free slots into the order, from which unlist takes it.
func (g *group) list(d *device) {
	g.order.ReplaceOrInsert(d)
	g.offers = g.order.Len()
}

func (g *group) unlist(d *device) {
	g.order.Delete(d)
	g.offers = g.order.Len()
}

// move puts a device into the group of the nodes that reach it now, and gives it
// the capacity. It reports whether a node is among them that was not before. Most
// updates of an Instance are claims, and change neither.
func (d *device) move(nodes []string, capacity int) (wider bool) {
	same := slices.Equal(nodes, d.nodes)
	if !same {
		nodes = sorted(nodes)
		same = slices.Equal(nodes, d.nodes)
	}
	if d.group != nil && same && capacity == d.capacity {
		return false
	}
	wider = !same && !subset(nodes, d.nodes)
	d.ungroup()
	d.capacity = capacity
	d.grow(capacity)
	d.group = d.kind.groupFor(nodes)
	d.nodes = d.group.nodes // one copy for all members
	d.group.members++
	d.group.slots += d.capacity
	d.group.free += d.nfree
	d.kind.free += d.nfree
	if d.nfree > 0 {
		d.group.list(d)
	}
	return wider
}

// ungroup takes it out again.
func (d *device) ungroup() {
	if d.group == nil {
		return
	}
	if d.nfree > 0 {
		d.group.unlist(d)
	}
	d.group.members--
	d.group.slots -= d.capacity
	d.group.free -= d.nfree
	d.kind.free -= d.nfree
	d.kind.dropIfEmpty(d.group)
	d.group = nil
}

// reaches reports whether the node can reach the device.
func (d *device) reaches(node string) bool {
	_, found := slices.BinarySearch(d.nodes, node)
	return found
}

// refresh recomputes whether slot i is free and keeps the order right. It
// reports whether the slot became free.
func (d *device) refresh(i int) bool {
	s := d.at(i)
	free := d.exists && i < d.capacity && len(s.holders) == 0 && s.claim == "" && s.nominee == ""
	if free == d.free.has(i) {
		return false
	}
	if d.group != nil && d.nfree > 0 {
		d.group.unlist(d)
	}
	step := 1
	if free {
		d.free.set(i)
	} else {
		d.free.clear(i)
		step = -1
	}
	d.nfree += step
	if d.group != nil {
		d.group.free += step
		d.kind.free += step
		if d.nfree > 0 {
			d.group.list(d)
		}
	}
	return free
}

// waitsForNominee reports whether slot i would be free, were it not kept for a
// pod that preempted: it is that pod's turn.
func (d *device) waitsForNominee(i int) bool {
	s := d.at(i)
	return s.nominee != "" && d.exists && i < d.capacity && len(s.holders) == 0 && s.claim == ""
}

// each calls visit with the group's devices that have free slots, from one of them
// or from the first on, in the strategy's order, until visit returns false.
func (g *group) each(strategy Strategy, from *device, visit func(*device) bool) {
	if strategy != Pack {
		if from == nil {
			g.order.Ascend(visit)
		} else {
			g.order.AscendGreaterOrEqual(from, visit)
		}
		return
	}
	// Ascending gives names in order within one count of free slots; the counts
	// are walked from the fewest up.
	if from == nil {
		if last, ok := g.order.Max(); ok {
			from = &device{nfree: last.nfree}
		}
	}
	for from != nil {
		n, more := from.nfree, true
		g.order.AscendGreaterOrEqual(from, func(d *device) bool {
			if d.nfree != n {
				return false
			}
			more = visit(d)
			return more
		})
		if !more {
			return
		}
		from = nil
		g.order.DescendLessOrEqual(&device{nfree: n}, func(d *device) bool {
			from = &device{nfree: d.nfree}
			return false
		})
	}
}
