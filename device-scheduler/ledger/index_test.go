package ledger

import "slices"

// checkIndex recomputes the groups of a Configuration's devices and the classes of its nodes.
func checkIndex(t failer, l *Ledger, conf *configRecord, members map[*group][]*device) {
	t.Helper()
	all := supply{}
	for key, g := range conf.groups {
		want, nodes, waits := supply{}, setKey{}, 0
		for _, d := range members[g] {
			want.add(d.supply())
			if at, ok := g.order.Get(d); d.nfree > 0 && (!ok || at != d) {
				t.Fatalf("%s has free slots, but its group's order misses it", d.name)
			}
			waiting := 0
			for i := range d.capacity {
				if s := d.at(i); !d.withheld && s != nil && s.use().as == nominated {
					waiting++
				}
			}
			if d.supply().waiting != waiting || slices.Contains(g.nominated, d) != (waiting > 0) {
				t.Fatalf("%d slots of %s wait for nominated pods, and the count is %d", waiting, d.name,
					d.supply().waiting)
			}
			if waiting > 0 {
				waits++
			}
		}
		if want != g.supply || want.offers != g.order.Len() || waits != len(g.nominated) || want.instances == 0 {
			t.Fatalf("a group counts %+v, has %d in order and %d nominated; want %+v", g.supply, g.order.Len(),
				len(g.nominated), want)
		}
		all.add(want)
		for _, c := range g.classes {
			if conf.classes[c.key] != c || !slices.Contains(c.groups, g) {
				t.Fatalf("a group has nodes that do not reach it")
			}
			for _, n := range c.nodes {
				nodes = nodes.toggled(n.key)
			}
		}
		if nodes != key || g.key != key {
			t.Fatalf("a group is not that of its nodes")
		}
	}
	if all.free != conf.free {
		t.Fatalf("%s counts %d free slots, want %d", conf.name, conf.free, all.free)
	}
	inClasses := 0
	for key, c := range conf.classes {
		want, devices := supply{}, setKey{}
		for _, g := range c.groups {
			if conf.groups[g.key] != g || !slices.Contains(g.classes, c) {
				t.Fatalf("nodes reach a group that does not know")
			}
			want.add(g.supply)
			for _, d := range members[g] {
				devices = devices.toggled(keyOf(d.name))
			}
		}
		if want != c.supply || devices != key || c.key != key || len(c.nodes) == 0 || len(c.groups) == 0 {
			t.Fatalf("%d nodes with %d groups count %+v, want %+v", len(c.nodes), len(c.groups), c.supply, want)
		}
		for _, n := range c.nodes {
			if l.nodes[n.name] != n || conf.classOf(n) != c {
				t.Fatalf("node %s is in two classes, or is none", n.name)
			}
		}
		inClasses += len(c.nodes)
	}
	if inClasses != conf.reach.nodes {
		t.Fatalf("%d nodes are in classes, and %d reach something", inClasses, conf.reach.nodes)
	}
	for at, page := range conf.reach.pages {
		for i := 0; page != nil && i < pageSize; i++ {
			if c := page[i]; c != nil && !slices.ContainsFunc(c.nodes,
				func(n *nodeRecord) bool { return n.number == int32(at*pageSize+i) }) {
				t.Fatalf("%s is reached by number %d, which is no node of its class", conf.name, at*pageSize+i)
			}
		}
	}
}
