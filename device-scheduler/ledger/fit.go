package ledger

import (
	"slices"

	"github.com/kubeslot/kubeslot/device-scheduler/slotsearch"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Fit chooses slots on the node for all of the pod's containers, or says what is missing.
// What it chose is taken in the draft; after a Shortfall the draft is of no more use.
// The slots of one Configuration do not depend on those of another: slotsearch chooses them.
func (dr *Draft) Fit(node string, req *Request) (Assignment, *Shortfall) {
	demands, unknown := dr.ledger.demands(req)
	if unknown != nil {
		return nil, unknown
	}
	f := &fitting{Draft: dr, node: dr.ledger.nodes[node], name: node}
	spans, a := req.spans(), make(Assignment, len(req.Containers))
	for i := range demands {
		p := f.problem(&demands[i])
		p.Spans, p.Budget = spans, req.Budget
		if shortfall := f.solve(p); shortfall != nil {
			return nil, shortfall
		}
		f.take(p, a)
	}
	return a, nil
}

// Reserve makes a pod that is expected on the node, but has no slots yet, take
// those that it would get. They are not those that are kept for the draft's own
// pod: two pods that are expected would else each wait for the other. A pod that
// slots are kept for has them without this, and one that does not fit takes none.
func (dr *Draft) Reserve(node string, req *Request) {
	if dr.ledger.nominations[req.UID] != nil {
		return
	}
	try := dr.Fork()
	if n := dr.ledger.nominations[dr.pod.UID]; n != nil {
		for _, h := range n.holds {
			try.change(dr.ledger.devices[h.slot.Instance]).take(h.slot.Index)
		}
	}
	if a, shortfall := try.Fit(node, req); shortfall == nil {
		dr.Take(node, a)
	}
}

// fitting is one run of Fit.
type fitting struct {
	*Draft
	node *nodeRecord // nil if it is not known: it reaches nothing
	name string      // of the node
}

// problem is a demand as slotsearch solves it: one Want for each of its wants.
type problem struct {
	slotsearch.Problem
	*demand
}

// problem states the demand, with the devices that it names.
func (f *fitting) problem(dm *demand) *problem {
	p := &problem{slotsearch.Problem{Unique: dm.config.unique(), Order: f.strategy.order}, dm}
	for _, d := range dm.named {
		in := &slotsearch.Instance{Name: d.name, Of: d}
		if d.reachedBy(f.node) {
			in.Free, in.UsedOnNode = f.nfree(d), f.usedOnNode(d)
		}
		p.Instances = append(p.Instances, in)
	}
	wants := make([]slotsearch.Want, len(dm.wants))
	p.Wants = make([]*slotsearch.Want, len(wants))
	for i := range wants {
		w := &dm.wants[i]
		wants[i].Container, wants[i].Count = w.index, w.Count
		if w.device != nil {
			wants[i].Instance = p.Instances[slices.Index(dm.named, w.device)]
		}
		p.Wants[i] = &wants[i]
	}
	return p
}

// usedOnNode reports whether uniqueness keeps all pods on the node from the device, unless
// they ask for it by name.
func (f *fitting) usedOnNode(d *device) bool {
	return d.config.oncePerNode() && f.clOnNode(d, f.name) > 0
}

// solve finds the slots for a problem.
func (f *fitting) solve(p *problem) *Shortfall {
	if p.most > 0 {
		f.enterFree(p)
	}
	slices.SortFunc(p.Instances, p.Order)
	short := p.Solve()
	if short == nil {
		return nil
	}
	own := 0
	for _, w := range p.Wants {
		if w != short && (short.Instance == nil || w.Instance == short.Instance) {
			own += w.Found()
		}
	}
	w := p.wants[slices.Index(p.Wants, short)]
	s := p.config.shortfall(p.config.classOf(f.node).has(w.device), w, own)
	if p.GaveUp {
		s.Reason = SearchLimit
	}
	return s
}

// take takes the slots that were found.
func (f *fitting) take(p *problem, a Assignment) {
	for _, in := range p.Instances {
		if len(in.Slots) == 0 {
			continue
		}
		ch := f.change(in.Of.(*device))
		for i := range in.Slots {
			in.Slots[i].Index = ch.taken.lowestAbsent()
			ch.take(in.Slots[i].Index)
			if !in.Slots[i].ByName {
				ch.addCL(f.name, 1)
			}
		}
	}
	for _, named := range []bool{true, false} { // in the order in which they were chosen
		for i, w := range p.Wants {
			name := p.wants[i].container.Name
			for n, got := range w.Got {
				if named == (w.Instance != nil) {
					a[name] = append(a[name], assignment.Grant{Resource: p.wants[i].Name, Ordinal: n,
						Slot: slot.Name{Instance: got.Instance.Name, Index: got.Instance.Slots[got.Slot].Index}})
				}
			}
		}
	}
}

// enterFree enters the devices with free slots that the node reaches. Of those in one group, and of those that the
// draft has changed, it enters only the first: one for each slot, and for each device that the pod has by name.
func (f *fitting) enterFree(p *problem) {
	most := p.slots + len(p.named)
	serves := func(d *device) bool { return !f.usedOnNode(d) && !slices.Contains(p.named, d) }
	instance := func(d *device, free int) *slotsearch.Instance {
		return &slotsearch.Instance{Name: d.name, Free: free, Of: d}
	}
	for _, g := range p.config.classOf(f.node).groups {
		for _, d := range g.nominated {
			if d.keptFor(f.pod) > 0 {
				f.change(d)
			}
		}
		n := 0
		g.each(f.strategy, func(d *device) bool {
			if f.seen(d) == nil && serves(d) {
				p.Instances = append(p.Instances, instance(d, f.nfree(d)))
				n++
			}
			return n < most
		})
	}
	var first []*slotsearch.Instance // of those that the draft has changed
	for dr := f.Draft; dr != nil; dr = dr.base {
		for d, ch := range dr.changed {
			if ch.nfree <= 0 || d.config != p.config || ch != f.seen(d) || !d.reachedBy(f.node) || !serves(d) {
				continue
			}
			if len(first) == most {
				if last := first[most-1]; f.strategy.compare(last.Free, last.Name, ch.nfree, d.name) < 0 {
					continue
				}
				first = first[:most-1]
			}
			in := instance(d, ch.nfree)
			at, _ := slices.BinarySearchFunc(first, in, p.Order)
			first = slices.Insert(first, at, in)
		}
	}
	p.Instances = append(p.Instances, first...)
}
