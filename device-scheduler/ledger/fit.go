package ledger

import (
	"maps"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Fit chooses slots on the node for all of the pod's containers, or says what
// is missing. What it chose is taken in the draft; after a Shortfall the draft is
// of no more use.
//
// Requests for an Instance come first, since they leave no choice; then those
// for a Configuration, each container in turn taking from the Instance that the
// strategy prefers. With Spread this finds an assignment whenever there is one:
// any solution that leaves out an Instance with as many free slots as one it
// uses can swap the two. That does not hold for containers which uniqueness
// keeps from an Instance that they have by name, so these choose first, and in
// each order if need be. Pack can run dry where Spread does not, and is retried
// as Spread.
//
// Init containers come last: they run before the app containers, and reuse
// their slots as far as they can.
func (dr *Draft) Fit(node string, req *Request) (Assignment, *Shortfall) {
	strategies := []Strategy{Spread}
	if dr.strategy == Pack {
		strategies = []Strategy{Pack, Spread}
	}
	orders := dr.ledger.orders(req)
	last := len(strategies)*len(orders) - 1
	var first *Shortfall
	for i, strategy := range strategies {
		for j, order := range orders {
			try := dr
			if i*len(orders)+j < last {
				try = dr.clone()
			}
			a, shortfall := try.fit(strategy, node, req, order)
			if shortfall == nil {
				dr.changed = try.changed
				return a, nil
			}
			if first == nil {
				first = shortfall
			}
		}
	}
	return nil, first
}

func (dr *Draft) clone() *Draft {
	c := *dr
	c.changed = make(map[*device]*change, len(dr.changed))
	for d, ch := range dr.changed {
		c.changed[d] = &change{free: slices.Clone(ch.free), nfree: ch.nfree, clOnNode: maps.Clone(ch.clOnNode)}
	}
	return &c
}

// fitting is one run of fit: what the pod has got so far.
type fitting struct {
	*Draft
	strategy Strategy
	node     string
	req      *Request
	// got has a row a container, in the request's order.
	got [][]pick
}

type pick struct {
	assignment.Grant
	device *device
}

func (dr *Draft) fit(strategy Strategy, node string, req *Request, order []int) (Assignment, *Shortfall) {
	f := &fitting{Draft: dr, strategy: strategy, node: node, req: req, got: make([][]pick, len(req.Containers))}
	for _, step := range []struct{ init, il bool }{{false, true}, {false, false}, {true, true}, {true, false}} {
		for at := range req.Containers {
			i := at
			if !step.init {
				i = order[at]
			}
			c := &req.Containers[i]
			if (c.Role == Init) != step.init {
				continue
			}
			for _, r := range c.Resources {
				k := dr.ledger.kindOf(r.Name)
				if k == nil {
					return nil, &Shortfall{Reason: Unknown, Container: c.Name, Resource: r.Name, Needed: r.Count}
				}
				if (k.name != r.Name) != step.il {
					continue
				}
				if shortfall := f.satisfy(i, r, k); shortfall != nil {
					return nil, shortfall
				}
			}
		}
	}
	a := make(Assignment, len(req.Containers))
	for i, picks := range f.got {
		for _, p := range picks {
			name := req.Containers[i].Name
			a[name] = append(a[name], p.Grant)
		}
	}
	return a, nil
}

// kindOf returns the kind that a resource name asks for: its Configuration, or
// that of the Instance which it names; nil if there is neither.
func (l *Ledger) kindOf(resource string) *kind {
	if k := l.kinds[resource]; k != nil && k.active != "" {
		return k
	}
	if d := l.devices[resource]; d != nil && d.exists {
		return d.kind
	}
	return nil
}

// satisfy gives container i the slots of one request.
func (f *fitting) satisfy(i int, r ResourceRequest, k *kind) *Shortfall {
	unique := k.unique()
	if r.Name != k.name && unique != "" && r.Count > 1 {
		return f.shortfall(i, r, k)
	}
	for ordinal := range r.Count {
		p, ok := f.reuse(i, r, k, unique)
		if !ok {
			p, ok = f.takeNew(i, r, k, unique)
		}
		if !ok {
			return f.shortfall(i, r, k)
		}
		p.Resource, p.Ordinal = r.Name, ordinal
		f.got[i] = append(f.got[i], p)
	}
	return nil
}

// reuse finds a slot for an init container among those that the pod has anyway
// and that nobody else uses while it runs: all but those of the sidecars that
// started before it. Slots keep their level, since a claim can have only one form.
func (f *fitting) reuse(i int, r ResourceRequest, k *kind, unique akriv0.UniqueScope) (pick, bool) {
	if f.req.Containers[i].Role != Init {
		return pick{}, false
	}
	for j := range f.got {
		if j == i || j < i && f.req.Containers[j].Role == Sidecar {
			continue
		}
		for _, p := range f.got[j] {
			sameLevel := p.InstanceLevel() == (r.Name != k.name)
			if !sameLevel || p.device.kind != k || r.Name != k.name && r.Name != p.device.name {
				continue
			}
			if f.has(i, p.Slot) || f.inUse(i, p.Slot) || unique != "" && f.uses(i, p.device) {
				continue
			}
			return p, true
		}
	}
	return pick{}, false
}

// inUse reports whether a sidecar that started before init container i has the slot.
func (f *fitting) inUse(i int, s slot.Name) bool {
	for j := range i {
		if f.req.Containers[j].Role == Sidecar && f.has(j, s) {
			return true
		}
	}
	return false
}

func (f *fitting) has(i int, s slot.Name) bool {
	for _, p := range f.got[i] {
		if p.Slot == s {
			return true
		}
	}
	return false
}

// uses reports whether container i has a slot of the device.
func (f *fitting) uses(i int, d *device) bool {
	for _, p := range f.got[i] {
		if p.device == d {
			return true
		}
	}
	return false
}

// takeNew takes a free slot for container i.
func (f *fitting) takeNew(i int, r ResourceRequest, k *kind, unique akriv0.UniqueScope) (pick, bool) {
	cl := r.Name == k.name
	allowed := func(d *device) bool { return f.nfree(d) > 0 && !f.excluded(i, d, cl, unique) }
	var best *device
	if !cl {
		if d := f.ledger.devices[r.Name]; d.reaches(f.node) && allowed(d) {
			best = d
		}
	} else {
		best = f.preferred(k, allowed)
	}
	if best == nil {
		return pick{}, false
	}
	return pick{Grant: assignment.Grant{Slot: f.take(best, cl, f.node)}, device: best}, true
}

// excluded reports whether uniqueness keeps container i from the device.
func (f *fitting) excluded(i int, d *device, cl bool, unique akriv0.UniqueScope) bool {
	switch unique {
	case "":
		return false
	case akriv0.UniquePerPod:
		for j := range f.got {
			if f.uses(j, d) {
				return true
			}
		}
		return false
	case akriv0.UniquePerNode:
		if cl && f.clOnNode(d, f.node) > 0 {
			return true
		}
	}
	return f.uses(i, d)
}

// preferred returns the kind's allowed device that the strategy takes first.
// Devices that the draft has not changed come in order from the index; the few
// that it has are compared one by one.
func (f *fitting) preferred(k *kind, allowed func(*device) bool) *device {
	var best *device
	better := func(d *device) {
		if best == nil || f.before(d, best) {
			best = d
		}
	}
	at := k.byNode[f.node]
	for g := range at.groups {
		g.each(f.strategy, func(d *device) bool {
			if f.changed[d] != nil || !allowed(d) {
				return true
			}
			better(d)
			return false
		})
	}
	for d := range f.changed {
		if d.kind == k && d.reaches(f.node) && allowed(d) {
			better(d)
		}
	}
	return best
}

func (f *fitting) before(a, b *device) bool {
	na, nb := f.nfree(a), f.nfree(b)
	switch {
	case na == nb:
		return a.name < b.name
	case f.strategy == Pack:
		return na < nb
	}
	return na > nb
}
