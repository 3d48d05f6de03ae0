package ledger

import (
	"hash/maphash"
	"iter"
	"slices"

	"github.com/google/btree"
)

// unreached is the class of nodes that reach nothing. It is not changed.
var unreached = &class{}

// classOf returns what the node reaches; nil is a node that is not known.
func (conf *configRecord) classOf(n *nodeRecord) *class {
	if n == nil {
		return unreached
	}
	return conf.reach.of(n.number)
}

// nodesOf are the nodes of the classes, so many together, sorted.
func nodesOf(classes iter.Seq[*class], together int) []string {
	names := make([]string, 0, together)
	for c := range classes {
		for _, n := range c.nodes {
			names = append(names, n.name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *class) reaches(g *group) bool { return g != nil && slices.Contains(c.groups, g) }

// has is what nodes of the class have of the device, or of all for nil, whoever holds it.
func (c *class) has(d *device) supply {
	switch {
	case d == nil:
		return c.supply
	case c.reaches(d.group):
		return d.supply()
	}
	return supply{}
}

func (c *class) link(g *group) {
	c.groups, g.classes = append(c.groups, g), append(g.classes, c)
	c.add(g.supply)
}

func (c *class) unlink(g *group) {
	c.groups, g.classes = remove(c.groups, g), remove(g.classes, c)
	c.add(supply{}.minus(g.supply))
}

// alone reports whether the class is one node, and no other one reaches the group.
func (c *class) alone(g *group) bool { return len(c.nodes) == 1 && len(g.classes) == 1 }

// own counts the free slots of the Instances that the class's only node reaches, and no other.
func (c *class) own() (free int) {
	for _, g := range c.groups {
		if c.alone(g) {
			free += g.free
		}
	}
	return free
}

func (c *class) toggle(g *group) {
	if c.reaches(g) {
		c.unlink(g)
	} else {
		c.link(g)
	}
}

// shift adds the node to those that reach the devices or, where it is among them, removes
// it. To join Instances that thousands of nodes share must not cost a node as much as there
// are others.
func shift(n *nodeRecord, devices []*device) {
	for conf, some := range by(devices, func(d *device) *configRecord { return d.config }) {
		alone := conf.reclassify(n, some)
		for _, same := range by(some, func(d *device) *group { return d.group }) {
			conf.regroup(n, same, alone)
		}
	}
}

// by sorts the devices by something that they may have in common.
func by[K comparable](devices []*device, of func(*device) K) map[K][]*device {
	sorted := map[K][]*device{}
	for _, d := range devices {
		sorted[of(d)] = append(sorted[of(d)], d)
	}
	return sorted
}

// reclassify moves the node to the class that it is in once it has joined or left the
// devices. If there was no such class it returns a new one, of this node alone, whose groups
// are yet those of the node before.
func (conf *configRecord) reclassify(n *nodeRecord, devices []*device) (alone *class) {
	from := conf.classOf(n)
	key := from.key
	for _, d := range devices {
		key = key.toggled(keyOf(d.name))
	}
	to := conf.classes[key]
	if to == nil && key != (setKey{}) {
		if len(from.nodes) == 1 {
			conf.rekey(from, key)
			return from
		}
		conf.classNo++
		alone = &class{id: conf.classNo, key: key}
		conf.classes[key] = alone
		for _, g := range from.groups {
			alone.link(g)
		}
		to = alone
	}
	if from != unreached {
		if from.nodes = remove(from.nodes, n); len(from.nodes) == 0 {
			conf.dropClass(from)
		}
	}
	conf.enter(to, n)
	return alone
}

// enter puts nodes into a class; nil is that of nodes which reach nothing.
func (conf *configRecord) enter(c *class, nodes ...*nodeRecord) {
	for _, n := range nodes {
		conf.reach.set(n.number, c)
	}
	if c != nil {
		c.nodes = append(c.nodes, nodes...)
	}
}

func (conf *configRecord) rekey(c *class, key setKey) {
	delete(conf.classes, c.key)
	c.key = key
	conf.classes[key] = c
}

func (conf *configRecord) dropClass(c *class) {
	for len(c.groups) > 0 {
		c.unlink(c.groups[0])
	}
	delete(conf.classes, c.key)
}

// regroup moves devices of one group to that of its nodes and this one or, if it is among them,
// without it. Where the node is not alone in a class, others reach all of the devices and none
// of the group's rest, and so there is no rest.
func (conf *configRecord) regroup(n *nodeRecord, devices []*device, alone *class) {
	from, key := devices[0].group, n.key
	if from != nil {
		key = from.key.toggled(n.key)
	}
	to := conf.groups[key]
	if to == nil && from != nil && len(devices) == from.instances {
		delete(conf.groups, from.key)
		from.key = key
		conf.groups[key] = from
		if alone != nil {
			alone.toggle(from)
		}
		return
	}
	leaves := alone != nil && alone.reaches(from)
	if to == nil {
		to = conf.newGroup(key)
		if from != nil {
			for _, c := range from.classes {
				c.link(to)
			}
		}
		alone.toggle(to)
	}
	for _, d := range devices {
		s := d.supply()
		if from != nil {
			from.list(d, s, supply{})
			d.group = to
			conf.moves++
		} else {
			s = d.appear(to)
			conf.free += s.free
		}
		to.list(d, supply{}, s)
		if leaves {
			alone.add(supply{}.minus(s))
		} else if alone != nil {
			alone.add(s)
		}
	}
	if from != nil {
		conf.dropIfEmpty(from)
	}
}

// appear puts a device that no node reached into the group, where it is not counted yet.
func (d *device) appear(g *group) supply {
	d.group, d.nfree = g, d.countFree()
	return d.supply()
}

// put has all nodes of the group reach a device that none reached.
func (d *device) put(g *group) {
	g.update(d, supply{}, d.appear(g))
	d.config.toggle(g.classes, d)
}

// remove takes the device away from all nodes.
func (d *device) remove() {
	g := d.group
	if g == nil {
		return
	}
	g.update(d, d.supply(), supply{})
	d.group = nil
	classes := slices.Clone(g.classes)
	d.config.dropIfEmpty(g)
	d.config.toggle(classes, d)
}

// toggle records that all nodes of the classes reach the device, or none any more.
func (conf *configRecord) toggle(classes []*class, d *device) {
	for _, c := range classes {
		key := c.key.toggled(keyOf(d.name))
		same := conf.classes[key]
		switch {
		case len(c.groups) == 0:
			conf.dropClass(c)
			conf.enter(nil, c.nodes...)
		case same == nil:
			conf.rekey(c, key)
		case len(same.nodes) < len(c.nodes):
			conf.dropClass(same)
			conf.rekey(c, key)
			conf.enter(c, same.nodes...)
		default:
			conf.dropClass(c)
			conf.enter(same, c.nodes...)
		}
	}
}

func (conf *configRecord) newGroup(key setKey) *group {
	g := &group{key: key, order: btree.NewWithFreeListG(btreeDegree, inOrder, conf.spare)}
	conf.groups[key] = g
	return g
}

func (conf *configRecord) dropIfEmpty(g *group) {
	if g.instances > 0 {
		return
	}
	for len(g.classes) > 0 {
		g.classes[0].unlink(g)
	}
	delete(conf.groups, g.key)
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func keyOf(name string) setKey {
	return setKey{maphash.String(seeds[0], name), maphash.String(seeds[1], name)}
}

// toggled is the set's key with the member added or, if it is in the set, removed.
func (k setKey) toggled(member setKey) setKey { return setKey{k[0] ^ member[0], k[1] ^ member[1]} }
