package ledger

import (
	"cmp"
	"slices"

	"github.com/google/btree"
)

// inOrder is the order of Spread. Pack walks back up from the fewest free slots.
func inOrder(a, b *device) bool { return Spread.compare(a.nfree, a.name, b.nfree, b.name) < 0 }

const btreeDegree = 16

// setKey tells sets of nodes apart: it is the XOR of the nodes' keys, which are random.
type setKey [2]uint64

// nodeSet is a set of nodes.
type nodeSet struct {
	key   setKey
	names []string // sorted
}

func (s *nodeSet) has(name string) bool {
	_, found := slices.BinarySearch(s.names, name)
	return found
}

// toggled is the set's key with the node added or, if it is in the set, removed.
func (s *nodeSet) toggled(n *nodeRecord) setKey {
	return setKey{s.key[0] ^ n.key[0], s.key[1] ^ n.key[1]}
}

// toggle adds the node or, if it is in the set, removes it.
func (s *nodeSet) toggle(n *nodeRecord) {
	s.key = s.toggled(n)
	if i, found := slices.BinarySearch(s.names, n.name); found {
		s.names = slices.Delete(s.names, i, i+1)
	} else {
		s.names = slices.Insert(s.names, i, n.name)
	}
}

// groupOf returns the kind's group of exactly these nodes, which it makes if needed.
func (k *kind) groupOf(nodes nodeSet) *group {
	if g := k.groups[nodes.key]; g != nil {
		return g
	}
	k.made++
	nodes.names = slices.Clone(nodes.names)
	g := &group{nodes: nodes, number: k.made, order: btree.NewWithFreeListG(btreeDegree, inOrder, k.spare)}
	k.groups[nodes.key] = g
	for _, name := range nodes.names {
		k.link(g, name, true)
	}
	return g
}

func (k *kind) dropIfEmpty(g *group) {
	if g.members > 0 {
		return
	}
	delete(k.groups, g.nodes.key)
	for _, name := range g.nodes.names {
		k.link(g, name, false)
	}
}

// link records that the node reaches the group's devices, or that it does not.
func (k *kind) link(g *group, name string, reaches bool) {
	r := k.byNode[name]
	if r.own == g {
		r.own = nil
	}
	i, found := slices.BinarySearchFunc(r.shared, g, func(a, b *group) int { return cmp.Compare(a.number, b.number) })
	shared := reaches && len(g.nodes.names) > 1
	switch {
	case shared && !found:
		r.shared = slices.Insert(r.shared, i, g)
	case !shared && found:
		r.shared = slices.Delete(r.shared, i, i+1)
	}
	if reaches && !shared {
		r.own = g
	}
	if r.own == nil && len(r.shared) == 0 {
		delete(k.byNode, name)
		r = reach{}
	} else {
		k.byNode[name] = r
	}
	k.snapshot.set(name, r)
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

// shift adds the node to those that reach the devices or, where it is among them, removes
// it. All of them exist. A group all of whose devices shift keeps them: to join devices
// that thousands of nodes share must not cost a node as much as there are others.
func shift(n *nodeRecord, devices []*device) {
	slices.SortStableFunc(devices, func(a, b *device) int {
		return cmp.Or(cmp.Compare(a.kind.name, b.kind.name), cmp.Compare(a.group.number, b.group.number))
	})
	for len(devices) > 0 {
		k, g := devices[0].kind, devices[0].group
		same := slices.IndexFunc(devices, func(d *device) bool { return d.group != g })
		if same < 0 {
			same = len(devices)
		}
		to := k.groups[g.nodes.toggled(n)]
		switch {
		case to != nil:
		case same == g.members:
			k.change(g, n)
			to = g
		default:
			nodes := nodeSet{key: g.nodes.key, names: slices.Clone(g.nodes.names)}
			nodes.toggle(n)
			to = k.groupOf(nodes)
		}
		if to != g {
			for _, d := range devices[:same] {
				d.remove()
				d.put(to)
			}
		}
		devices = devices[same:]
	}
}

// change adds the node to the group or, if it is in it, removes it.
func (k *kind) change(g *group, n *nodeRecord) {
	delete(k.groups, g.nodes.key)
	g.nodes.toggle(n)
	k.groups[g.nodes.key] = g
	k.link(g, n.name, g.nodes.has(n.name))
	if len(g.nodes.names) <= 2 { // the other reached it alone, or does now
		for _, name := range g.nodes.names {
			k.link(g, name, true)
		}
	}
}

// put puts a device that is in no group into one.
func (d *device) put(g *group) {
	d.group = g
	g.members++
	g.slots += d.capacity
	d.nfree = d.capacity - d.taken.below(d.capacity)
	g.free += d.nfree
	d.kind.free += d.nfree
	d.list()
}

// remove takes the device out of its group, if it is in one.
func (d *device) remove() {
	g := d.group
	if g == nil {
		return
	}
	d.unlist()
	d.group = nil
	g.members--
	g.slots -= d.capacity
	g.free -= d.nfree
	d.kind.free -= d.nfree
	d.nfree = 0
	d.kind.dropIfEmpty(g)
}

// list enters a device in its group's order if it has free slots; unlist takes it out.
func (d *device) list() {
	if g := d.group; g != nil && d.nfree > 0 {
		g.order.ReplaceOrInsert(d)
		g.offers = g.order.Len()
	}
}

func (d *device) unlist() {
	if g := d.group; g != nil && d.nfree > 0 {
		g.order.Delete(d)
		g.offers = g.order.Len()
	}
}

// each calls visit with the group's devices that have free slots, in the strategy's order,
// until visit returns false.
func (g *group) each(strategy Strategy, visit func(*device) bool) {
	if strategy != Pack {
		g.order.Ascend(visit)
		return
	}
	// The tree has names in order among devices with as many free slots: these are walked
	// from the fewest up.
	for last, some := g.order.Max(); some; {
		stopped := false
		first := &device{nfree: last.nfree}
		g.order.AscendRange(first, &device{nfree: last.nfree - 1}, func(d *device) bool {
			stopped = !visit(d)
			return !stopped
		})
		if some = false; stopped {
			return
		}
		g.order.DescendLessOrEqual(first, func(d *device) bool {
			last, some = d, true
			return false
		})
	}
}
