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
	configs map[*configRecord]bool // of which something is asked for; true if it is in the groups
	groups  map[*group]leaving
}

// leaving is what pods of lower priority, and pods that are being deleted, hold of a group.
type leaving struct {
	pods             []*podRecord // without those that are being deleted
	slots, instances int
}

// PotentialVictims finds the pods of lower priority that hold slots of what is asked for. It looks at each pod
// once, so that many nodes can be asked after that; if no priority is lower, only at pods that are being deleted.
func (l *Ledger) PotentialVictims(req *Request) *PotentialVictims {
	configs, named := l.asked(req)
	h := &PotentialVictims{ledger: l, req: req, configs: map[*configRecord]bool{}, groups: map[*group]leaving{}}
	for conf := range configs {
		h.configs[conf] = false
	}
	for d := range named {
		h.configs[d.config] = false
	}
	pods := l.terminating
	for conf := range h.configs {
		if conf.heldBelow(req.Priority) {
			pods = l.pods
		}
	}
	counted := map[*device]bool{}
	for _, p := range pods {
		if p.Priority >= req.Priority && !p.terminating {
			continue
		}
		for _, held := range p.holds {
			d := l.devices[held.slot.Instance]
			if d.group == nil || !configs[d.config] && !named[d] {
				continue
			}
			h.configs[d.config] = true
			of := h.groups[d.group]
			if !p.terminating && (len(of.pods) == 0 || of.pods[len(of.pods)-1] != p) {
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

// Nodes returns those of the nodes that might serve the request once all pods of lower priority are
// gone, as Distinct does. It is quick where no slot of a Configuration that is asked for is free, kept
// for a nominated pod, or held by one of the pods.
func (h *PotentialVictims) Nodes(nodes []string) []string {
	for conf, held := range h.configs {
		if conf.free == 0 && len(conf.waiting) == 0 && !held {
			return nil
		}
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return !h.suffice(node) })
	return h.ledger.Distinct(nodes, h.req)
}

// suffice reports whether the node might serve the request once all pods of lower priority are
// gone. It counts, and looks at no pod: where it is false Preempt finds nothing, and where it is
// true Preempt may find nothing either.
func (h *PotentialVictims) suffice(node string) bool {
	together := map[*configRecord]int{} // slots of containers that run together in the end
	for _, c := range h.req.Containers {
		for _, r := range c.Resources {
			conf, named := h.ledger.resource(r.Name)
			if conf == nil {
				return false
			}
			if named != nil {
				continue // of the nodes that reach one Instance few are Distinct
			}
			at := conf.classOf(h.ledger.nodes[node])
			slots, instances := at.waiting+at.free, at.waiting+at.offers
			for _, g := range at.groups {
				slots += h.groups[g].slots
				instances += h.groups[g].instances
			}
			if c.Role != Init {
				together[conf] += r.Count
			}
			if slots < max(r.Count, together[conf]) || conf.unique() != "" && instances < r.Count {
				return false
			}
		}
	}
	return true
}

// On returns those that hold devices which the node reaches, on whichever node they are
// themselves, ordered by UID. Pods that are being deleted are not among them.
func (h *PotentialVictims) On(node string) []Victim {
	seen := map[*podRecord]bool{}
	var found []Victim
	for conf := range h.configs {
		for _, g := range conf.classOf(h.ledger.nodes[node]).groups {
			for _, p := range h.groups[g].pods {
				if !seen[p] {
					seen[p] = true
					found = append(found, Victim{Pod: p.Pod, Node: p.node})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b Victim) int { return cmp.Compare(a.UID, b.UID) })
	return found
}

// asked returns the Configurations that the request asks for any Instance of, and the
// Instances that it asks for by name.
func (l *Ledger) asked(req *Request) (map[*configRecord]bool, map[*device]bool) {
	configs, named := map[*configRecord]bool{}, map[*device]bool{}
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			if conf, d := l.resource(r.Name); d != nil {
				named[d] = true
			} else if conf != nil {
				configs[conf] = true
			}
		}
	}
	return configs, named
}

// Distinct returns the nodes, sorted, without those that are to the request like
// one before them: they reach the same devices, and Preempt finds the same there.
func (l *Ledger) Distinct(nodes []string, req *Request) []string {
	demands := l.demands(req)
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

// Preempt finds which of the candidates have to go for the request to fit the
// node. None of them could stay: pods whose eviction violates a budget are spared
// first, then those of higher priority, then older ones, though more of the others
// go for it. Pods that are being deleted count as gone. It returns nil when no
// candidates help.
//
// The more pods go, the more fits. So the most important victim is the first of the
// shortest tail of the candidates that is enough, and the next ones are found alike
// among those behind it.
func (l *Ledger) Preempt(strategy Strategy, node string, req *Request, candidates []Victim) *Preemption {
	l.searches.Add(1)
	if a, shortfall := l.Draft(strategy, req.Pod).Fit(node, req); shortfall == nil {
		return &Preemption{Node: node, Assignment: a, Free: true}
	}
	var ending []string
	configs, named := l.asked(req)
	for uid, p := range l.terminating {
		if slices.ContainsFunc(p.holds, func(h hold) bool {
			d := l.devices[h.slot.Instance]
			return (configs[d.config] || named[d]) && d.reachedBy(l.nodes[node])
		}) {
			ending = append(ending, uid)
		}
	}
	fit := func(gone ...[]Victim) Assignment {
		draft := l.Draft(strategy, req.Pod)
		for _, uid := range ending {
			draft.Release(uid)
		}
		for _, v := range slices.Concat(gone...) {
			draft.Release(v.UID)
		}
		if a, shortfall := draft.Fit(node, req); shortfall == nil {
			return a
		}
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(candidates), func(v Victim) bool { return l.pods[v.UID] == nil || l.pods[v.UID].terminating })
	slices.SortFunc(rest, MoreImportant)
	p := &Preemption{Node: node}
	for p.Assignment = fit(); p.Assignment == nil; p.Assignment = fit(p.Victims) {
		tail := shortest(len(rest), func(n int) bool { return fit(p.Victims, rest[len(rest)-n:]) != nil })
		if tail == 0 {
			return nil
		}
		at := len(rest) - tail
		p.Victims, rest = append(p.Victims, rest[at]), rest[at+1:]
	}
	return p
}

// PreemptionSearches is how often Preempt was called: each call is of one pod and one node.
func (l *Ledger) PreemptionSearches() int64 { return l.searches.Load() }

// shortest returns the least length from 1 to most that is enough, 0 if none is. It
// looks at short ones first: to release many pods takes long, and few are needed.
func shortest(most int, enough func(int) bool) int {
	short, length := 0, 1
	for ; length < most && !enough(length); length *= 2 {
		short = length
	}
	if length = min(length, most); length == 0 || length == most && !enough(most) {
		return 0
	}
	return short + 1 + sort.Search(length-short-1, func(i int) bool { return enough(short + 1 + i) })
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
