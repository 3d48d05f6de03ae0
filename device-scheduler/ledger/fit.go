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
// each order if need be. Where two of them are in a pod, an assignment may be missed:
// the one that chooses first may take what only it could leave to the other
// (one: cam=2 cam-3=1, two: cam=2 cam-4=1). Pack can run dry where Spread does not,
// and is retried as Spread.
//
// At each level init containers come last: they run before the app containers, and
// reuse their slots as far as they can.
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
	got    [][]pick
	queues []*queue
}

type pick struct {
	assignment.Grant
	device *device
}

// need is a request of a container that is being satisfied.
type need struct {
	ResourceRequest
	container int
	kind      *kind
	unique    akriv0.UniqueScope
	got       int
}

// cl reports whether any device of the kind will do.
func (n *need) cl() bool { return n.Name == n.kind.name }

func (dr *Draft) fit(strategy Strategy, node string, req *Request, order []int) (Assignment, *Shortfall) {
	f := &fitting{Draft: dr, strategy: strategy, node: node, req: req, got: make([][]pick, len(req.Containers))}
	for _, ch := range dr.changed {
		ch.users = nil // of another pod
	}
	for _, step := range []struct{ init, il bool }{{false, true}, {true, true}, {false, false}, {true, false}} {
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
	n := &need{ResourceRequest: r, container: i, kind: k, unique: k.unique()}
	if !n.cl() && n.unique != "" && n.Count > 1 {
		return f.shortfall(i, r, k)
	}
	if f.req.Containers[i].Role == Init {
		f.reuse(n)
	}
	if n.cl() {
		f.takeAny(n)
	} else {
		f.takeNamed(n)
	}
	if n.got < n.Count {
		return f.shortfall(i, r, k)
	}
	return nil
}

// give gives the container a slot.
func (f *fitting) give(n *need, p pick) {
	p.Resource, p.Ordinal = n.Name, n.got
	n.got++
	f.got[n.container] = append(f.got[n.container], p)
	ch := f.changed[p.device]
	ch.users = append(ch.users, n.container)
}

// reuse gives an init container slots that the pod has anyway and that nobody else
// uses while it runs: all but those of the sidecars that started before it. Slots
// keep their level, since a claim can have only one form.
func (f *fitting) reuse(n *need) {
	i := n.container
	taken := map[slot.Name]bool{} // by those sidecars, or by this container
	for j := range i + 1 {
		if j == i || f.req.Containers[j].Role == Sidecar {
			for _, p := range f.got[j] {
				taken[p.Slot] = true
			}
		}
	}
	for j := range f.got {
		if j == i {
			continue
		}
		for _, p := range f.got[j] {
			if n.got == n.Count {
				return
			}
			sameLevel := p.InstanceLevel() != n.cl()
			if !sameLevel || p.device.kind != n.kind || !n.cl() && n.Name != p.device.name {
				continue
			}
			if taken[p.Slot] || f.excluded(n, p.device) {
				continue
			}
			taken[p.Slot] = true
			f.give(n, p)
		}
	}
}

// takeNamed gives the container free slots of the Instance that it asks for.
func (f *fitting) takeNamed(n *need) {
	d := f.ledger.devices[n.Name]
	for n.got < n.Count && d.reaches(f.node) && f.nfree(d) > 0 && !f.spent(n, d) && !f.excluded(n, d) {
		f.give(n, f.take(n, d))
	}
}

// takeAny gives the container free slots of those Instances that the strategy takes
// first.
func (f *fitting) takeAny(n *need) {
	q := f.queue(n.kind)
	var excluded []*device
	for n.got < n.Count {
		d := q.top()
		switch {
		case d == nil:
			return
		case f.spent(n, d):
			q.drop()
		case f.excluded(n, d):
			q.drop()
			excluded = append(excluded, d)
		default:
			f.give(n, f.take(n, d))
		}
	}
	for _, d := range excluded {
		q.enter(d)
	}
}

func (f *fitting) take(n *need, d *device) pick {
	p := pick{Grant: assignment.Grant{Slot: f.Draft.take(d, n.cl(), f.node)}, device: d}
	for _, q := range f.queues {
		if q.kind == d.kind {
			q.enter(d)
		}
	}
	return p
}

// spent reports whether uniqueness keeps all of the pod's containers from another
// slot of the device.
func (f *fitting) spent(n *need, d *device) bool {
	switch n.unique {
	case akriv0.UniquePerPod:
		return len(f.users(d)) > 0
	case akriv0.UniquePerNode:
		return n.cl() && f.clOnNode(d, f.node) > 0
	}
	return false
}

// excluded reports whether uniqueness keeps the container from the device.
func (f *fitting) excluded(n *need, d *device) bool {
	return n.unique != "" && slices.Contains(f.users(d), n.container)
}

// users are the containers that have got slots of the device.
func (f *fitting) users(d *device) []int {
	if ch := f.changed[d]; ch != nil {
		return ch.users
	}
	return nil
}
