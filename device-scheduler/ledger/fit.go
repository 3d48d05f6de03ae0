package ledger

import (
	"iter"
	"maps"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Fit chooses slots on the node for all of the pod's containers, or says what
// is missing. What it chose is taken in the draft; after a Shortfall the draft is
// of no more use.
//
// Requests for an Instance come first, since they leave no choice; then those
// for a Configuration, each container in turn taking from the Instance that the
// strategy prefers. Where uniqueness keeps a container from all that is left, it
// trades with others of the pod (trade.go), so that an assignment is found whenever
// there is one, but for pods as room.go names.
//
// At each level init containers come last: they run before the app containers, and
// reuse their slots as far as they can.
func (dr *Draft) Fit(node string, req *Request) (Assignment, *Shortfall) {
	f := &fitting{Draft: dr, node: node, req: req, got: make([][]pick, len(req.Containers))}
	for _, ch := range dr.changed {
		ch.uses = nil // of another pod
	}
	for _, step := range []struct{ il, init bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		for i := range req.Containers {
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
	node string
	req  *Request
	// got has a row a container, in the request's order.
	got    [][]pick
	queues []*queue
	// spared are init containers of whose devices none is to be filled; see room.go.
	spared []int
	// work counts the uses that were looked at.
	work int
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

// servedBy reports whether a slot that the pod has is one of those asked for.
func (n *need) servedBy(p pick) bool {
	if n.cl() {
		return p.device.kind == n.kind && !p.InstanceLevel()
	}
	return p.device.name == n.Name && p.InstanceLevel()
}

// kindOf returns the kind that a resource name asks for: its Configuration, or
// that of the Instance which it names; nil if there is neither.
func (l *Ledger) kindOf(resource string) *kind {
	if k := l.kinds[resource]; k != nil && k.owner != nil {
		return k
	}
	if d := l.devices[resource]; d != nil && d.exists() {
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
	init := f.req.Containers[i].Role == Init
	if init {
		f.reuse(n)
	}
	if !n.cl() {
		f.takeNamed(n)
	} else if excluded := f.takeAny(n); n.unique != "" {
		for n.got < n.Count && (init && f.makeRoom(n) || !init && f.trade(n, excluded)) {
		}
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
	ch.uses = append(ch.uses, use{n.container, p.Slot.Index, n.cl()})
}

// reuse gives the container slots that are idle while it runs.
func (f *fitting) reuse(n *need) {
	for p := range f.idle(n) {
		if n.got == n.Count {
			return
		}
		f.give(n, p)
	}
}

// idle yields slots that could serve the need, which the pod has anyway and which
// nobody uses while the container runs. Slots keep their level, since a claim can have
// only one form.
func (f *fitting) idle(n *need) iter.Seq[pick] {
	return func(yield func(pick) bool) {
		for j, picks := range f.got {
			if f.req.together(n.container, j) {
				continue
			}
			for _, p := range picks {
				if n.servedBy(p) && !f.excluded(n, p.device) && !f.inUse(p, n.container) && !yield(p) {
					return
				}
			}
		}
	}
}

// inUse reports whether the slot is in use while the container runs.
func (f *fitting) inUse(p pick, container int) bool {
	return slices.ContainsFunc(f.uses(p.device), func(u use) bool {
		return u.index == p.Slot.Index && f.req.together(container, u.container)
	})
}

// takeNamed gives the container free slots of the Instance that it asks for.
func (f *fitting) takeNamed(n *need) {
	d := f.ledger.devices[n.Name]
	for n.got < n.Count && d.reaches(f.node) && f.nfree(d) > 0 && !f.spent(n, d) && !f.excluded(n, d) {
		f.give(n, f.take(n, d))
	}
}

// takeAny gives the container free slots of those Instances that the strategy takes
// first. It returns those with free slots that uniqueness keeps it from.
func (f *fitting) takeAny(n *need) []*device {
	q := f.queue(n.kind)
	var excluded []*device
	for n.got < n.Count {
		d := q.next(n, &excluded)
		if d == nil {
			break
		}
		f.give(n, f.take(n, d))
	}
	q.enter(excluded...)
	return excluded
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
		return len(f.uses(d)) > 0
	case akriv0.UniquePerNode:
		return n.cl() && f.clOnNode(d, f.node) > 0
	}
	return false
}

// excluded reports whether uniqueness keeps the container from the device.
func (f *fitting) excluded(n *need, d *device) bool {
	return n.unique != "" && (f.usedBy(d, n.container) || f.fills(n, d, n.container, nobody))
}

// usedBy reports whether the container has a slot of the device.
func (f *fitting) usedBy(d *device, container int) bool {
	return slices.ContainsFunc(f.uses(d), func(u use) bool { return u.container == container })
}

// uses are those of the device by the pod.
func (f *fitting) uses(d *device) []use {
	if ch := f.changed[d]; ch != nil {
		f.work += len(ch.uses)
		return ch.uses
	}
	return nil
}
