package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// Victim is a pod that may be made to go.
type Victim struct {
	Pod
	Node string
	// Started orders pods of one priority: the older is the more important.
	Started int64
	// Protected is set when its eviction would violate a PodDisruptionBudget.
	Protected bool
}

// moreImportant orders victims: those to spare first.
func moreImportant(a, b Victim) int {
	if a.Protected != b.Protected {
		if a.Protected {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Started, b.Started), cmp.Compare(a.UID, b.UID))
}

// Holders returns the pods that hold slots which the request could be served
// from on the node, on whichever node they are themselves, ordered by UID. Pods
// that are being deleted are not among them.
func (l *Ledger) Holders(node string, req *Request) []Victim {
	found := map[string]Victim{}
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			k := l.kindOf(r.Name)
			if k == nil {
				continue
			}
			for uid, p := range l.pods {
				if p.ending {
					continue
				}
				for _, h := range p.holds {
					d := l.devices[h.slot.Instance]
					if d.kind == k && d.reaches(node) && (r.Name == k.name || r.Name == d.name) {
						found[uid] = Victim{Pod: p.Pod, Node: p.node}
						break
					}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Victim) int { return cmp.Compare(a.UID, b.UID) })
}

// Preemption is what it would take to run a pod on a node.
type Preemption struct {
	Node    string
	Victims []Victim
	// Assignment is what the pod gets once the victims are gone.
	Assignment Assignment
	// Free is set when the pod fits as things are: there is nothing to wait for.
	Free bool
}

// Preempt finds the fewest of the candidates that have to go for the request to
// fit the node, none of which could stay: pods whose eviction violates a budget
// are spared first, then those of higher priority, then older ones. Pods that
// are being deleted count as gone. It returns nil when no candidates help.
func (l *Ledger) Preempt(strategy Strategy, node string, req *Request, candidates []Victim) *Preemption {
	if a, shortfall := l.Draft(strategy).For(req.Pod).Fit(node, req); shortfall == nil {
		return &Preemption{Node: node, Assignment: a, Free: true}
	}
	gone := map[string]bool{}
	for uid, p := range l.pods {
		if p.ending {
			gone[uid] = true
		}
	}
	fit := func() Assignment {
		draft := l.Draft(strategy).For(req.Pod)
		for uid := range gone {
			draft.Release(uid)
		}
		if a, shortfall := draft.Fit(node, req); shortfall == nil {
			return a
		}
		return nil
	}
	for _, v := range candidates {
		gone[v.UID] = true
	}
	if fit() == nil {
		return nil
	}
	p := &Preemption{Node: node}
	for _, v := range slices.SortedFunc(slices.Values(candidates), moreImportant) {
		delete(gone, v.UID)
		if fit() == nil {
			gone[v.UID] = true
			p.Victims = append(p.Victims, v)
		}
	}
	p.Assignment = fit()
	return p
}

// Better orders preemptions, the best first: the fewest violated budgets, then
// the lowest highest priority among the victims, then the fewest victims, then
// the node's name.
func Better(a, b *Preemption) int {
	protected := func(p *Preemption) (n int) {
		for _, v := range p.Victims {
			if v.Protected {
				n++
			}
		}
		return n
	}
	highest := func(p *Preemption) int32 {
		if len(p.Victims) == 0 {
			return -1 << 31
		}
		return slices.MaxFunc(p.Victims, func(a, b Victim) int { return cmp.Compare(a.Priority, b.Priority) }).Priority
	}
	return cmp.Or(cmp.Compare(protected(a), protected(b)), cmp.Compare(highest(a), highest(b)),
		cmp.Compare(len(a.Victims), len(b.Victims)), cmp.Compare(a.Node, b.Node))
}

// SetEnding records that the pod is being deleted.
func (l *Ledger) SetEnding(uid string) {
	if p := l.pods[uid]; p != nil {
		p.ending = true
	}
}
