package ledger

import (
	"cmp"
	"slices"
	"sort"
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

// MoreImportant orders victims: those to spare first.
func MoreImportant(a, b Victim) int {
	if a.Protected != b.Protected {
		if a.Protected {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Started, b.Started), cmp.Compare(a.UID, b.UID))
}

// PotentialVictims are the pods that hold what a request could be served from somewhere, at
// the time when it was asked for them. It reads the ledger, and is to be guarded with it.
type PotentialVictims struct {
	ledger  *Ledger
	req     *Request
	demands []demand
	groups  map[*group]leaving
	held    map[*configRecord]bool // of which the groups' pods hold slots
	moves   int                    // of the demands' devices until then
	looked  int
}

// leaving is what pods of lower priority, and pods that are being deleted, hold of a group.
type leaving struct {
	pods             []*podRecord
	slots, instances int
}

// PotentialVictims finds the pods of lower priority that hold slots of what is asked for. It looks at each pod
// once, so that many nodes can be asked after that; if no priority is lower, only at pods that are being deleted.
func (l *Ledger) PotentialVictims(req *Request) *PotentialVictims {
	demands, _ := l.demands(req)
	if slices.ContainsFunc(demands, func(dm demand) bool { return dm.config.heldBelow(req.Priority) }) {
		return l.leaving(req, demands, l.pods)
	}
	return l.leaving(req, demands, l.terminating)
}

// leaving finds those of the pods that are to go, or may be made to, and hold what is asked for.
func (l *Ledger) leaving(req *Request, demands []demand, pods map[string]*podRecord) *PotentialVictims {
	h := &PotentialVictims{ledger: l, req: req, demands: demands, groups: map[*group]leaving{},
		held: map[*configRecord]bool{}}
	h.moves = h.countMoves()
	counted := map[*device]bool{}
	for _, p := range pods {
		if p.Priority >= req.Priority && !p.terminating {
			continue
		}
		for _, held := range p.holds {
			d := l.devices[held.slot.Instance]
			if d.group == nil || !slices.ContainsFunc(demands, func(dm demand) bool { return dm.asksFor(d) }) {
				continue
			}
			h.held[d.config] = true
			of := h.groups[d.group]
			if len(of.pods) == 0 || of.pods[len(of.pods)-1] != p {
				of.pods = append(of.pods, p)
			}
			if of.slots++; !counted[d] {
				counted[d] = true
				of.instances++
			}
			h.groups[d.group] = of
		}
	}
	return h
}

// Nodes returns those of the nodes, sorted, that might serve the request once all pods of lower priority are
// gone, without those that are like one before them. It is quick where no slot of a Configuration that is asked
// for is free, kept for a nominated pod, or held by one of the pods.
func (h *PotentialVictims) Nodes(nodes []string) []string {
	for i := range h.demands {
		if conf := h.demands[i].config; conf.free == 0 && len(conf.waiting) == 0 && !h.held[conf] {
			return nil
		}
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return !h.suffice(node) })
	return h.ledger.distinct(nodes, h.demands)
}

// suffice reports whether the node might serve the request once all pods of lower priority are
// gone. It counts, and looks at no pod: where it is false Preempt finds nothing, and where it is
// true Preempt may find nothing either. Of the nodes that reach an Instance which is asked for by
// its name, few are distinct, and it does not look at these.
func (h *PotentialVictims) suffice(node string) bool {
	n := h.ledger.nodes[node]
	for i := range h.demands {
		dm := &h.demands[i]
		at := dm.config.classOf(n)
		slots, instances := at.waiting+at.free, at.waiting+at.offers
		for _, g := range at.groups {
			slots += h.groups[g].slots
			instances += h.groups[g].instances
		}
		if !dm.mayFit(slots, instances) {
			return false
		}
	}
	return true
}

// Outdated reports whether nodes may reach more of the pods' devices than the answers tell, since other nodes
// have begun or ceased to reach these.
func (h *PotentialVictims) Outdated() bool { return h.countMoves() != h.moves }

func (h *PotentialVictims) countMoves() (n int) {
	for i := range h.demands {
		n += h.demands[i].config.moves
	}
	return n
}

// On returns those that hold devices which the node reaches, on whichever node they are
// themselves, ordered by UID. Pods that are being deleted are not among them.
func (h *PotentialVictims) On(node string) []Victim {
	var found []Victim
	lower, _ := h.on(node)
	for p := range lower {
		found = append(found, Victim{Pod: p.Pod, Node: p.node})
	}
	slices.SortFunc(found, func(a, b Victim) int { return cmp.Compare(a.UID, b.UID) })
	h.looked += len(found)
	return found
}

// Looked is how many pods On and Preempt have looked at, a pod each time that it was: Preempt does so each time
// that it chooses slots with the pod gone.
func (h *PotentialVictims) Looked() int { return h.looked }

// on returns the pods that hold devices which the node reaches, and of them those that are being deleted by now.
func (h *PotentialVictims) on(node string) (lower, ending map[*podRecord]bool) {
	lower, ending = map[*podRecord]bool{}, map[*podRecord]bool{}
	for i := range h.demands {
		for _, g := range h.demands[i].config.classOf(h.ledger.nodes[node]).groups {
			for _, p := range h.groups[g].pods {
				if p.terminating {
					ending[p] = true
				} else {
					lower[p] = true
				}
			}
		}
	}
	return lower, ending
}

// distinct returns the nodes, sorted, without those that are to the demands like
// one before them: they reach the same devices, and Preempt finds the same there.
func (l *Ledger) distinct(nodes []string, demands []demand) []string {
	var distinct []string
	var like []byte
	seen := map[string]bool{}
	for _, node := range slices.Compact(slices.Sorted(slices.Values(nodes))) {
		if like = l.appendLike(like[:0], demands, node); !seen[string(like)] {
			seen[string(like)] = true
			distinct = append(distinct, node)
		}
	}
	return distinct
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

// Preempt is PotentialVictims.Preempt where one node is asked.
func (l *Ledger) Preempt(strategy Strategy, node string, req *Request, candidates []Victim) *Preemption {
	demands, _ := l.demands(req)
	return l.leaving(req, demands, l.terminating).Preempt(strategy, node, candidates)
}

// Preempt finds which of the candidates have to go for the request to fit the
// node. None of them could stay: pods whose eviction violates a budget are spared
// first, then those of higher priority, then older ones, though more of the others
// go for it. Pods that are being deleted count as gone. It returns nil when no
// candidates help.
//
// The more pods go, the more fits. So the most important victim is the first of the
// shortest tail of the candidates that is enough. Of those behind it, as many can stay
// as leave enough without them; then comes the next victim.
func (h *PotentialVictims) Preempt(strategy Strategy, node string, candidates []Victim) *Preemption {
	l, req := h.ledger, h.req
	l.searches.Add(1)
	if a, shortfall := l.Draft(strategy, req.Pod).Fit(node, req); shortfall == nil {
		return &Preemption{Node: node, Assignment: a, Free: true}
	}
	_, ending := h.on(node)
	freeable := h.freeable(node, ending)
	rest := slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool {
		return l.pods[v.UID] == nil || l.pods[v.UID].terminating
	})
	slices.SortFunc(rest, MoreImportant)
	fit := func(some ...[]Victim) Assignment {
		gone := slices.Concat(some...)
		if !freeable.enough(gone) {
			return nil
		}
		h.looked += len(ending) + len(gone)
		draft := l.Draft(strategy, req.Pod)
		for p := range ending {
			draft.Release(p.UID)
		}
		for _, v := range gone {
			draft.Release(v.UID)
		}
		if a, shortfall := draft.Fit(node, req); shortfall == nil {
			return a
		}
		return nil
	}
	p := &Preemption{Node: node}
	for p.Assignment = fit(); p.Assignment == nil; p.Assignment = fit(p.Victims) {
		var at int
		if len(p.Victims) == 0 { // most pods need few, and to release many takes long
			at = len(rest) - 1 - last(len(rest), func(n int) bool { return fit(rest[len(rest)-n:]) == nil })
		} else { // most of the rest are victims
			at = last(len(rest)-1, func(n int) bool { return fit(p.Victims, rest[n:]) != nil })
		}
		if at < 0 || at >= len(rest) {
			return nil
		}
		p.Victims, rest = append(p.Victims, rest[at]), rest[at+1:]
	}
	return p
}

// freeable counts what is free on a node for each demand once pods are gone, at the most. Where that is too little,
// no slots need be chosen to know that the request does not fit; most requests need all that their victims have.
type freeable struct {
	*PotentialVictims
	node *nodeRecord
	has  []supply             // once the pods are gone that are being deleted
	held map[string][]*device // of which pods have a slot that is asked for, by UID
}

func (h *PotentialVictims) freeable(node string, ending map[*podRecord]bool) *freeable {
	f := &freeable{h, h.ledger.nodes[node], make([]supply, len(h.demands)), map[string][]*device{}}
	for i := range h.demands {
		at := h.demands[i].config.classOf(f.node)
		f.has[i] = supply{free: at.free + at.waiting, offers: at.offers + at.waiting}
	}
	seen := map[*device]bool{}
	for p := range ending {
		f.release(p.UID, f.has, seen)
	}
	return f
}

// enough reports whether there may be enough once these are gone.
func (f *freeable) enough(gone []Victim) bool {
	has, seen := slices.Clone(f.has), make(map[*device]bool, len(gone))
	for _, v := range gone {
		f.release(v.UID, has, seen)
	}
	for i := range f.demands {
		if !f.demands[i].mayFit(has[i].free, has[i].offers) {
			return false
		}
	}
	return true
}

// release counts what the pod has. seen are the devices of which a slot was counted.
func (f *freeable) release(uid string, has []supply, seen map[*device]bool) {
	held, known := f.held[uid]
	if p := f.ledger.pods[uid]; !known && p != nil {
		for _, h := range p.holds {
			if d := f.ledger.devices[h.slot.Instance]; d.reachedBy(f.node) {
				held = append(held, d)
			}
		}
		f.held[uid] = held
	}
	for _, d := range held {
		for i := range f.demands {
			if f.demands[i].config != d.config {
				continue
			}
			has[i].free++
			if !seen[d] {
				seen[d] = true
				has[i].offers++
			}
		}
	}
}

// PreemptionSearches is how often Preempt was called: each call is of one pod and one node.
func (l *Ledger) PreemptionSearches() int64 { return l.searches.Load() }

// last returns the last number from 0 to most of which holds is true: of 0 it is, and of none after the
// first of which it is not. It looks at small ones first.
func last(most int, holds func(int) bool) int {
	low, high := 0, 1
	for ; high <= most && holds(high); high *= 2 {
		low = high
	}
	high = min(high, most+1)
	return low + sort.Search(high-low-1, func(i int) bool { return !holds(low + 1 + i) })
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

// SetTerminating records that the pod is being deleted. It reports whether that is new.
func (l *Ledger) SetTerminating(uid string) bool {
	p := l.pods[uid]
	if p == nil || p.terminating {
		return false
	}
	p.terminating = true
	l.terminating[uid] = p
	return true
}
