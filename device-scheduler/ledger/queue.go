package ledger

import "container/heap"

// queue is the devices of a kind that a node reaches and that have free slots in a
// draft, in the order in which the strategy takes from them. Those that the draft has
// changed are all in it; the others come from the index, where they lie in order: of
// each group the first that has not been dropped.
type queue struct {
	fitting *fitting
	kind    *kind
	entries []entry
}

// entry is a device with its free slots when it was entered. If it has others by now,
// slots of it were taken meanwhile, and it was entered anew.
type entry struct {
	device *device
	nfree  int
	// from is the group that the device is the first of; nil if it is not from the index.
	from *group
}

// queue returns the kind's queue, which it makes if needed.
func (f *fitting) queue(k *kind) *queue {
	for _, q := range f.queues {
		if q.kind == k {
			return q
		}
	}
	q := &queue{fitting: f, kind: k}
	at := k.byNode[f.node]
	for g := range at.groups {
		if d := f.following(g, nil); d != nil {
			q.entries = append(q.entries, entry{d, d.nfree, g})
		}
	}
	for d := range f.changed {
		if d.kind == k && d.reaches(f.node) && f.nfree(d) > 0 {
			q.entries = append(q.entries, entry{d, f.nfree(d), nil})
		}
	}
	heap.Init(q)
	f.queues = append(f.queues, q)
	return q
}

// following returns the group's first device after another, or of all, that has free
// slots and that the draft has not changed; nil if there is none.
func (f *fitting) following(g *group, after *device) *device {
	var found *device
	g.each(f.strategy, after, func(d *device) bool {
		if d == after || f.changed[d] != nil {
			return true
		}
		found = d
		return false
	})
	return found
}

// top returns the device that is to be taken from; nil if none has free slots.
func (q *queue) top() *device {
	for len(q.entries) > 0 {
		if e := q.entries[0]; e.nfree == q.fitting.nfree(e.device) {
			return e.device
		}
		q.drop()
	}
	return nil
}

// drop takes out the first entry.
func (q *queue) drop() {
	e := q.entries[0]
	if e.from != nil {
		if d := q.fitting.following(e.from, e.device); d != nil {
			q.entries[0] = entry{d, d.nfree, e.from}
			heap.Fix(q, 0)
			return
		}
	}
	heap.Pop(q)
}

// next returns the device that the container is to take from; nil if there is none.
// It takes out those before it, and adds to excluded those which others of the pod may
// take from.
func (q *queue) next(n *need, excluded *[]*device) *device {
	for {
		d := q.top()
		switch {
		case d == nil:
			return nil
		case q.fitting.spent(n, d):
			q.drop()
		case q.fitting.excluded(n, d):
			q.drop()
			*excluded = append(*excluded, d)
		default:
			return d
		}
	}
}

// enter puts devices in, with the slots that they have left.
func (q *queue) enter(devices ...*device) {
	for _, d := range devices {
		if n := q.fitting.nfree(d); n > 0 {
			heap.Push(q, entry{d, n, nil})
		}
	}
}

// Len implements heap.Interface.
func (q *queue) Len() int { return len(q.entries) }

// Less implements heap.Interface.
func (q *queue) Less(i, j int) bool {
	a, b := &q.entries[i], &q.entries[j]
	switch {
	case a.nfree == b.nfree:
		return a.device.name < b.device.name
	case q.fitting.strategy == Pack:
		return a.nfree < b.nfree
	}
	return a.nfree > b.nfree
}

// Swap implements heap.Interface.
func (q *queue) Swap(i, j int) { q.entries[i], q.entries[j] = q.entries[j], q.entries[i] }

// Push implements heap.Interface.
func (q *queue) Push(e any) { q.entries = append(q.entries, e.(entry)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(q.entries) - 1
	e := q.entries[last]
	q.entries = q.entries[:last]
	return e
}
