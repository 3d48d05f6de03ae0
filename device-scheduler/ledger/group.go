package ledger

import "slices"

func (s *supply) add(o supply) {
	s.instances += o.instances
	s.slots += o.slots
	s.free += o.free
	s.offers += o.offers
	s.waiting += o.waiting
	s.withheld += o.withheld
}

func (s supply) minus(o supply) supply {
	return supply{s.instances - o.instances, s.slots - o.slots, s.free - o.free, s.offers - o.offers,
		s.waiting - o.waiting, s.withheld - o.withheld}
}

// inOrder is the order of Spread. Pack walks back up from the fewest free slots.
func inOrder(a, b *device) bool { return Spread.compare(a.nfree, a.name, b.nfree, b.name) < 0 }

const btreeDegree = 16

// supply is what the device gives, nothing while no node reaches it.
func (d *device) supply() supply {
	if d.group == nil {
		return supply{}
	}
	if d.withheld {
		return supply{instances: 1, slots: d.capacity, withheld: 1}
	}
	s := supply{instances: 1, slots: d.capacity, free: d.nfree, waiting: len(d.config.waiting[d])}
	if d.nfree > 0 {
		s.offers = 1
	}
	return s
}

// changed brings all counts up to date, and the group's order, after a change of the
// device's slots.
func (d *device) changed(before supply) {
	if now := d.supply(); now != before {
		d.group.update(d, before, now)
	}
}

// update is list, which also counts for the nodes that reach the group and the Configuration.
func (g *group) update(d *device, before, now supply) {
	g.list(d, before, now)
	more := now.minus(before)
	d.config.free += more.free
	for _, c := range g.classes {
		c.add(more)
	}
}

// list brings the group's own counts, its order and its nominated Instances up to date.
func (g *group) list(d *device, before, now supply) {
	g.add(now.minus(before))
	if before.free != now.free {
		if before.free > 0 {
			d.nfree = before.free
			g.order.Delete(d)
		}
		if d.nfree = now.free; now.free > 0 {
			g.order.ReplaceOrInsert(d)
		}
	}
	switch {
	case before.waiting == 0 && now.waiting > 0:
		g.nominated = append(g.nominated, d)
	case before.waiting > 0 && now.waiting == 0:
		g.nominated = remove(g.nominated, d)
	}
}

// nodes is how many nodes reach the group.
func (g *group) nodes() int {
	n := 0
	for _, c := range g.classes {
		n += len(c.nodes)
	}
	return n
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

// remove takes one out of a slice that is in no order.
func remove[T comparable](of []T, one T) []T {
	at, last := slices.Index(of, one), len(of)-1
	of[at] = of[last]
	return slices.Delete(of, last, last+1)
}
