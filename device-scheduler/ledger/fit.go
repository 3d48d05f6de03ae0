package ledger

import (
	"slices"

	"github.com/kubeslot/kubeslot/device-scheduler/slotsearch"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Fit chooses slots on the node for all of the pod's containers, or says what is missing.
// What it chose is taken in the draft; after a Shortfall the draft is of no more use.
// The slots of one Configuration do not depend on those of another: slotsearch chooses them.
func (dr *Draft) Fit(node string, req *Request) (Assignment, *Shortfall) {
	f := &fitting{Draft: dr, node: dr.ledger.nodes[node], name: node, req: req, spans: req.spans()}
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			conf, d := dr.ledger.resource(r.Name)
			if conf == nil {
				return nil, dr.ledger.unknown(req.Containers[i].Name, r)
			}
			f.want(conf, d, i, r)
		}
	}
	a := make(Assignment, len(req.Containers))
	for _, p := range f.problems {
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
	node     *nodeRecord // nil if it is not known: it reaches nothing
	name     string      // of the node
	req      *Request
	spans    []slotsearch.Span
	problems []*problem
}

// problem is what the pod asks for of one Configuration.
type problem struct {
	slotsearch.Problem
	config *configRecord
	asked  []ResourceRequest // as the wants
	slots  int               // of all wants
}

// want adds a request of a container, for the device if it names one, to the problem of its
// Configuration.
func (f *fitting) want(conf *configRecord, d *device, container int, r ResourceRequest) {
	at := slices.IndexFunc(f.problems, func(p *problem) bool { return p.config == conf })
	if at < 0 {
		at = len(f.problems)
		f.problems = append(f.problems, &problem{config: conf,
			Problem: slotsearch.Problem{Unique: conf.unique(), Spans: f.spans, Order: f.strategy.order,
				Budget: f.req.Budget}})
	}
	p := f.problems[at]
	w := &slotsearch.Want{Container: container, Count: r.Count}
	if d != nil {
		w.Instance = p.named(f, d)
	}
	p.Wants, p.asked, p.slots = append(p.Wants, w), append(p.asked, r), p.slots+r.Count
}

// named returns a device that the pod asks for by name.
func (p *problem) named(f *fitting, d *device) *slotsearch.Instance {
	for _, in := range p.Instances {
		if in.Of == d {
			return in
		}
	}
	in := &slotsearch.Instance{Name: d.name, Of: d}
	if d.reachedBy(f.node) {
		in.Free, in.UsedOnNode = f.nfree(d), f.usedOnNode(p, d)
	}
	p.Instances = append(p.Instances, in)
	return in
}

// usedOnNode reports whether uniqueness keeps all pods on the node from the device, unless
// they ask for it by name.
func (f *fitting) usedOnNode(p *problem, d *device) bool {
	return p.Unique == akriv0.UniquePerNode && f.clOnNode(d, f.name) > 0
}

// solve finds the slots for a problem.
func (f *fitting) solve(p *problem) *Shortfall {
	if slices.ContainsFunc(p.Wants, func(w *slotsearch.Want) bool { return w.Instance == nil }) {
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
	has := p.config.classOf(f.node).supply
	if short.Instance != nil {
		if has = (supply{}); short.Instance.Of.(*device).reachedBy(f.node) {
			has = short.Instance.Of.(*device).supply()
		}
	}
	s := p.config.shortfall(has, f.req.Containers[short.Container].Name, p.asked[slices.Index(p.Wants, short)],
		short.Instance != nil, own)
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
			name := f.req.Containers[w.Container].Name
			for n, got := range w.Got {
				if named == (w.Instance != nil) {
					a[name] = append(a[name], assignment.Grant{Resource: p.asked[i].Name, Ordinal: n,
						Slot: slot.Name{Instance: got.Instance.Name, Index: got.Instance.Slots[got.Slot].Index}})
				}
			}
		}
	}
}

// enterFree enters the devices with free slots that the node reaches. Of those in one group, and of those that the
// draft has changed, it enters only the first: one for each slot, and for each device that the pod has by name.
func (f *fitting) enterFree(p *problem) {
	named := len(p.Instances)
	most := p.slots + named
	serves := func(d *device) bool {
		return !f.usedOnNode(p, d) &&
			!slices.ContainsFunc(p.Instances[:named], func(in *slotsearch.Instance) bool { return in.Of == d })
	}
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
