package ledger

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestVictims compares Preempt with a search that lets each candidate stay in turn,
// and the best node of all with the best of those that are distinct.
func TestVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy")
		l := crowded(t, strategy)
		started := rapid.SliceOfN(rapid.Int64Range(0, 3), pods, pods).Draw(t, "started")
		protected := rapid.SliceOfN(rapid.Bool(), pods, pods).Draw(t, "protected")
		for range 8 {
			req := drawRequest(t, Pod{UID: "vip", Name: "vip", Priority: int32(rapid.IntRange(1, 4).Draw(t, "priority"))})
			req.Containers = append(req.Containers, needs(t))
			demands, _ := l.demands(req)
			distinct := l.distinct(worldNodes, demands)
			var best, bestDistinct *Preemption
			for _, node := range worldNodes {
				candidates := l.PotentialVictims(req).On(node)
				for i := range candidates {
					v := &candidates[i]
					n, err := strconv.Atoi(v.UID)
					if err != nil {
						t.Fatal(err)
					}
					v.Started, v.Protected = started[n], protected[n]
				}
				got, want := l.Preempt(strategy, node, req, candidates), tryEach(l, strategy, node, req, candidates)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("on %s of %v:\n%+v\nwant:\n%+v", node, candidates, got, want)
				}
				if got == nil {
					continue
				}
				if best == nil || Better(got, best) < 0 {
					best = got
				}
				if slices.Contains(distinct, node) && (bestDistinct == nil || Better(got, bestDistinct) < 0) {
					bestDistinct = got
				}
			}
			if !reflect.DeepEqual(best, bestDistinct) {
				t.Fatalf("best of all nodes:\n%+v\nof %v:\n%+v", best, distinct, bestDistinct)
			}
		}
	})
}

// TestDistinct has devices that all nodes reach, or one of them alone.
func TestDistinct(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{})
	for name, nodes := range map[string][]string{"cam-1": worldNodes, "cam-2": {"c"}} {
		share(l, name, nodes...)
	}
	check := func(resource string, want ...string) {
		t.Helper()
		req := &Request{Containers: []ContainerRequest{{Resources: []ResourceRequest{{Name: full(resource), Count: 1}}}}}
		demands, _ := l.demands(req)
		if got := l.distinct([]string{"b", "c", "a"}, demands); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", resource, got, want)
		}
	}
	check("cam", "a", "c")
	check("cam-1", "a")
	check("cam-2", "a", "c")
	// With that scope it matters what pods on the node have.
	l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{UniqueScope: akriv0.UniquePerNode}))
	check("cam", "a", "b", "c")
	check("cam-1", "a")
}

// TestSuffice: what containers take that run at the same time adds up.
func TestSuffice(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{Capacity: 2})
	share(l, "cam-1", "a")
	req := podFor(3, 1)
	if l.PotentialVictims(req).suffice("a") {
		t.Error("2 slots suffice for 3 containers")
	}
	if req.Containers[0].Role = Init; !l.PotentialVictims(req).suffice("a") {
		t.Error("2 slots do not suffice for 2 containers and one that runs before them")
	}
}

// A pod may have the one slot, from its holder or otherwise, or it is known at once that it cannot.
func TestNodesWithPotentialVictims(t *testing.T) {
	given := Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: full("cam-1")}}}}
	for name, test := range map[string]struct {
		change func(*Ledger)
		nodes  []string
	}{
		"a pod of the same priority holds it": {func(*Ledger) {}, nil},
		"its holder is being deleted":         {func(l *Ledger) { l.SetTerminating("holder") }, []string{"a"}},
		"its holder is gone":                  {func(l *Ledger) { l.Remove("holder") }, []string{"a"}},
		"a pod of lower priority is nominated to it": {func(l *Ledger) {
			l.Remove("holder")
			l.Nominate(Pod{UID: "nominee"}, "a", given)
		}, []string{"a"}},
		"a pod of lower priority holds it": {func(l *Ledger) {
			l.Remove("holder")
			l.Observe(Pod{UID: "lower", Priority: 4}, "a", given)
		}, []string{"a"}},
	} {
		for _, resource := range []string{"cam", "cam-1"} {
			l := ledgerOf(akriv0.ConfigurationSpec{})
			share(l, "cam-1", "a")
			l.Observe(Pod{UID: "holder", Priority: 5}, "a", given)
			test.change(l)
			req := podFor(1, 1)
			req.Priority, req.Containers[0].Resources[0].Name = 5, full(resource)
			if got := l.PotentialVictims(req).Nodes([]string{"a"}); !slices.Equal(got, test.nodes) {
				t.Errorf("%s, asked for %s: nodes %v, want %v", name, resource, got, test.nodes)
			}
		}
	}
}

// pods is how many come to a crowded ledger.
const pods = 20

// crowded returns a ledger with devices that pods of several priorities hold.
func crowded(t *rapid.T, strategy Strategy) *Ledger {
	l := New()
	for _, name := range []string{"cam", "gps"} {
		spec := drawUnique(t)
		spec.Capacity = 3
		l.SetConfiguration(configurationOf(name, spec))
		for i := range rapid.IntRange(3, 4).Draw(t, "instances") {
			in := fmt.Sprintf("%s-%d", name, i)
			nodes := rapid.SliceOfNDistinct(rapid.SampledFrom(worldNodes), 2, 3, rapid.ID[string]).Draw(t, "nodes")
			share(l, in, nodes...)
			occupy(l, in, nodes[0], rapid.IntRange(1, 3).Draw(t, "capacity"), 3)
			if rapid.IntRange(0, 9).Draw(t, "claimed") == 9 {
				occupy(l, in, nodes[0], 0, 1)
			}
		}
	}
	for i := range pods {
		name := strconv.Itoa(i)
		req := &Request{Pod: Pod{UID: name, Name: name, Priority: int32(rapid.IntRange(0, 3).Draw(t, "priority"))}, Containers: rapid.SliceOfN(rapid.Custom(needs), 1, 2).Draw(t, "containers")}
		for i := range req.Containers {
			req.Containers[i].Name = fmt.Sprint("c", i)
		}
		node := rapid.SampledFrom(worldNodes).Draw(t, "node")
		a, shortfall := l.Draft(strategy, req.Pod).Fit(node, req)
		switch {
		case shortfall == nil && len(a) > 0:
			l.Observe(req.Pod, node, a)
			if rapid.IntRange(0, 9).Draw(t, "ending") == 9 {
				l.SetTerminating(name)
			}
		case rapid.IntRange(0, 5).Draw(t, "preempts") == 5:
			if p := l.Preempt(strategy, node, req, l.PotentialVictims(req).On(node)); p != nil {
				l.Nominate(req.Pod, node, p.Assignment)
			}
		}
	}
	return l
}

// A pod that needs all that others leave is not given slots anew for each of them: counts tell that the rest are
// too few.
func TestPreemptChoosesSlotsFewTimes(t *testing.T) {
	const pods = 100
	h, candidates := needsAll(pods)
	before := h.Looked()
	if p := h.Preempt(Spread, "a", candidates); p == nil || len(p.Victims) != pods {
		t.Fatalf("%+v", p)
	}
	if looked := h.Looked() - before; looked > 5*pods {
		t.Errorf("slots were chosen with %d pods gone, want at most %d", looked, 5*pods)
	}
}

// needs is a container that asks for something.
func needs(t *rapid.T) ContainerRequest {
	name := rapid.SampledFrom([]string{"cam", "gps", full("cam-1")}).Draw(t, "needs")
	return ContainerRequest{Name: "main", Resources: []ResourceRequest{{Name: name, Count: 1}}}
}

// tryEach is what Preempt has to find: of the candidates, those that may stay are
// let stay, the most important first.
func tryEach(l *Ledger, strategy Strategy, node string, req *Request, candidates []Victim) *Preemption {
	if a, shortfall := l.Draft(strategy, req.Pod).Fit(node, req); shortfall == nil {
		return &Preemption{Node: node, Assignment: a, Free: true}
	}
	gone := map[string]bool{}
	for uid, p := range l.pods {
		gone[uid] = p.terminating
	}
	fit := func() Assignment {
		draft := l.Draft(strategy, req.Pod)
		for uid, gone := range gone {
			if gone {
				draft.Release(uid)
			}
		}
		a, _ := draft.Fit(node, req)
		return a
	}
	for _, v := range candidates {
		gone[v.UID] = true
	}
	if fit() == nil {
		return nil
	}
	p := &Preemption{Node: node}
	for _, v := range slices.SortedFunc(slices.Values(candidates), MoreImportant) {
		if gone[v.UID] = false; fit() == nil {
			gone[v.UID] = true
			p.Victims = append(p.Victims, v)
		}
	}
	p.Assignment = fit()
	return p
}

// preempt keeps slots for a pod; its victims go when "pod gone" picks them.
func (w *world) preempt(t *rapid.T) {
	pod := w.newPod(t, "vip")
	pod.Priority++
	node := rapid.SampledFrom(worldNodes).Draw(t, "node")
	req := drawRequest(t, pod)
	candidates := w.PotentialVictims(req).On(node)
	for i := range candidates {
		candidates[i].Protected = rapid.Bool().Draw(t, "protected")
		candidates[i].Started = int64(rapid.IntRange(1, 2).Draw(t, "started"))
	}
	p, want := w.Preempt(w.strategy, node, req, candidates), tryEach(w.Ledger, w.strategy, node, req, candidates)
	if !reflect.DeepEqual(p, want) {
		t.Fatalf("on %s of %v:\n%+v\nwant:\n%+v", node, candidates, p, want)
	}
	if p == nil {
		return
	}
	gone := maps.Clone(w.ending)
	for _, v := range p.Victims {
		gone[v.UID] = true
	}
	w.rules(node, req, gone).check(t, p.Assignment)
	w.event.add(w.Nominate(pod, node, p.Assignment))
	w.wants[pod.UID] = req
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
		for _, h := range n.holds {
			d := w.devices[h.slot.Instance]
			free, before := !draft.change(d).taken.has(h.slot.Index), d.freeFor(n.Pod, h.slot.Index)
			if free != before {
				t.Fatalf("%s is kept for %s: it is free for it %v, and %v with others expected", h.slot, uid, before, free)
			}
		}
	}
}

func (w *world) clearNomination(t *rapid.T) {
	w.event.add(w.ClearNomination(pickKey(t, w.nominations)))
}

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

func TestMoreImportant(t *testing.T) {
	for name, test := range map[string]struct{ more, less Victim }{
		"its budget allows no eviction, whatever the priority": {Victim{Protected: true}, Victim{Pod: Pod{Priority: 5}}},
		"a higher priority, though it is younger":              {Victim{Pod: Pod{Priority: 2}, Started: 9}, Victim{Pod: Pod{Priority: 1}, Started: 1}},
		"the older one": {Victim{Pod: Pod{UID: "b"}, Started: 1}, Victim{Pod: Pod{UID: "a"}, Started: 2}},
		"the UID":       {Victim{Pod: Pod{UID: "a"}}, Victim{Pod: Pod{UID: "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if there, back := MoreImportant(test.more, test.less), MoreImportant(test.less, test.more); there >= 0 || back <= 0 {
				t.Errorf("MoreImportant() = %d, and %d the other way round", there, back)
			}
		})
	}
}
