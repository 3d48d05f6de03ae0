package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// preempt keeps slots for a pod; its victims go when "pod gone" picks them.
func (w *world) preempt(t *rapid.T) {
	pod := w.newPod(t, "vip")
	pod.Priority++
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	req := drawRequest(t, pod)
	candidates := drawCandidates(t, w.Ledger, node, req)
	p := w.Preempt(w.strategy, node, req, candidates)
	if p == nil {
		return
	}
	checkVictims(t, w.Ledger, w.strategy, req, candidates, p)
	gone := maps.Clone(w.ending)
	for _, v := range p.Victims {
		gone[v.UID] = true
	}
	w.rules(node, req, gone).check(t, p.Assignment)
	w.Nominate(pod, node, p.Assignment)
	w.wants[pod.UID] = req
}

func drawCandidates(t *rapid.T, l *Ledger, node string, req *Request) []Victim {
	candidates := slices.DeleteFunc(l.PotentialVictims(req).On(node), func(v Victim) bool { return v.Priority >= req.Priority })
	for i := range candidates {
		candidates[i].Protected = rapid.Bool().Draw(t, "protected")
		candidates[i].Started = int64(rapid.IntRange(1, 2).Draw(t, "started"))
	}
	return candidates
}

// checkVictims checks that none of the victims could stay.
func checkVictims(t *rapid.T, l *Ledger, strategy Strategy, req *Request, candidates []Victim, p *Preemption) {
	for _, v := range p.Victims {
		if v.Priority >= req.Priority {
			t.Fatalf("pod %s of priority %d evicts %s of priority %d", req.UID, req.Priority, v.UID, v.Priority)
		}
		others := slices.DeleteFunc(slices.Clone(p.Victims), func(o Victim) bool { return o.UID == v.UID })
		if l.Preempt(strategy, p.Node, req, others) != nil {
			t.Fatalf("of the victims %+v, %s could stay", p.Victims, v.UID)
		}
		// The victims that are more important stay victims; no choice among the others
		// would spare this one.
		instead := slices.DeleteFunc(slices.Clone(candidates), func(o Victim) bool {
			return o.UID == v.UID || importance(o, v) > 0 && !slices.Contains(p.Victims, o)
		})
		if l.Preempt(strategy, p.Node, req, instead) != nil {
			t.Fatalf("of the victims %+v, %s could stay if some of %+v went", p.Victims, v.UID, instead)
		}
	}
}

// TestPreemptionSparesWhatItCan preempts on a node whose slots are all held, by pods
// of which some hold several.
func TestPreemptionSparesWhatItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New()
		spec := drawUnique(t)
		spec.Capacity = 3
		l.SetConfiguration(configurationOf("cam", spec))
		for i := range rapid.IntRange(1, 4).Draw(t, "Instances") {
			name := fmt.Sprint("cam-", i)
			share(l, name, "a", "b")
			occupy(l, name, "a", rapid.IntRange(1, 3).Draw(t, "capacity"), 3)
		}
		var slots []slot.Name
		for name, d := range l.devices {
			for i := range d.nfree {
				slots = append(slots, slot.Name{Instance: name, Index: i})
			}
		}
		slices.SortFunc(slots, compareSlots)
		for slots = rapid.Permutation(slots).Draw(t, "slots"); len(slots) > 0; {
			n := min(len(slots), rapid.IntRange(1, 2).Draw(t, "held by one"))
			a := Assignment{}
			for i, s := range slots[:n] {
				a[fmt.Sprint("c", i)] = []assignment.Grant{{Resource: "cam", Slot: s}}
			}
			pod := Pod{UID: fmt.Sprint("p", len(slots)), Namespace: "ns", Name: "p", Priority: drawPriority(t)}
			l.Observe(pod, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"), a)
			slots = slots[n:]
		}
		req := drawRequest(t, Pod{UID: "vip", Namespace: "ns", Name: "vip", Priority: 2})
		req.Containers = append(req.Containers, ContainerRequest{Name: "main", Resources: []ResourceRequest{{Name: "cam", Count: 1}}})
		for i := range req.Containers { // there is no other Configuration
			req.Containers[i].Resources = slices.DeleteFunc(req.Containers[i].Resources, func(r ResourceRequest) bool {
				return l.configOf(r.Name) == nil
			})
		}
		candidates := drawCandidates(t, l, "a", req)
		if p := l.Preempt(Spread, "a", req, candidates); p != nil {
			checkVictims(t, l, Spread, req, candidates, p)
		}
	})
}

// importance is positive if a is to be spared rather than b.
func importance(a, b Victim) int {
	switch {
	case a.Protected != b.Protected && a.Protected:
		return 1
	case a.Protected != b.Protected:
		return -1
	}
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Started, a.Started), cmp.Compare(b.UID, a.UID))
}

// checkExpected checks that no pod which slots are kept for is kept from them by
// others that are expected on its node.
func (w *world) checkExpected(t *rapid.T) {
	for uid, n := range w.nominations {
		if _, shortfall := w.Draft(w.strategy, n.Pod).Fit(n.node, w.wants[uid]); shortfall != nil {
			continue // its victims are there yet, or the rules have changed
		}
		draft := w.Draft(w.strategy, n.Pod)
		for other, req := range w.wants {
			if other != uid {
				draft.Reserve(n.node, req)
			}
		}
		free := 0
		for _, h := range n.holds {
			if !draft.change(w.devices[h.slot.Instance]).taken.has(h.slot.Index) {
				free++
			}
		}
		before := 0
		for _, h := range n.holds {
			if w.freeFor(n.Pod, w.devices[h.slot.Instance], h.slot.Index) {
				before++
			}
		}
		if free != before {
			t.Fatalf("of %v, which are kept for %s, %d are free, and %d with others expected", n.holds, uid, before, free)
		}
	}
}

func (w *world) clearNomination(t *rapid.T) { w.ClearNomination(pickKey(t, w.nominations)) }

func TestBetter(t *testing.T) {
	on := func(node string, victims ...Victim) *Preemption { return &Preemption{Node: node, Victims: victims} }
	low, high := Victim{Pod: Pod{Priority: 1}}, Victim{Pod: Pod{Priority: 5}}
	guarded := Victim{Pod: Pod{Priority: 1}, Protected: true}
	for name, test := range map[string]struct{ better, worse *Preemption }{
		"nobody has to go":                                   {on("b"), on("a", low)},
		"fewer violated budgets, though more pods":           {on("b", high, high, high), on("a", guarded)},
		"fewer violated budgets, though another is violated": {on("b", guarded, high), on("a", guarded, guarded)},
		"a lower highest priority, though more pods":         {on("b", low, low, low), on("a", high)},
		"fewer pods, of one highest priority":                {on("b", low, high), on("a", high, low, low)},
		"negative priorities":                                {on("b", Victim{Pod: Pod{Priority: -2}}), on("a", Victim{Pod: Pod{Priority: -1}})},
		"the node's name":                                    {on("a", low, high), on("b", high, low)},
	} {
		t.Run(name, func(t *testing.T) {
			if there, back := Better(test.better, test.worse), Better(test.worse, test.better); there >= 0 || back <= 0 {
				t.Errorf("Better() = %d, and %d the other way round", there, back)
			}
		})
	}
	if got := Better(on("a", low), on("a", low)); got != 0 {
		t.Errorf("Better() of equals = %d", got)
	}
}
