package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// TestVictims compares Preempt with a search that lets each candidate stay in turn,
// and the best node of all with the best of those that Distinct leaves.
func TestVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy")
		l := crowded(t, strategy)
		started := rapid.SliceOfN(rapid.Int64Range(0, 3), pods, pods).Draw(t, "started")
		protected := rapid.SliceOfN(rapid.Bool(), pods, pods).Draw(t, "protected")
		for range 8 {
			req := drawRequest(t, Pod{UID: "vip", Name: "vip", Priority: int32(rapid.IntRange(1, 4).Draw(t, "priority"))})
			req.Containers = append(req.Containers, needs(t))
			distinct := l.Distinct(worldNodes, req)
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
	l := New()
	configuration := configurationOf("cam", akriv0.ConfigurationSpec{})
	l.SetConfiguration(configuration)
	for name, nodes := range map[string][]string{"cam-1": worldNodes, "cam-2": {"c"}} {
		share(l, name, nodes...)
	}
	check := func(resource string, want ...string) {
		t.Helper()
		req := &Request{Containers: []ContainerRequest{{Resources: []ResourceRequest{{Name: full(resource), Count: 1}}}}}
		if got := l.Distinct([]string{"b", "c", "a"}, req); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", resource, got, want)
		}
	}
	check("cam", "a", "c")
	check("cam-1", "a")
	check("cam-2", "a", "c")
	// With that scope it matters what pods on the node have.
	perNode := configuration.DeepCopy()
	perNode.Spec.UniqueScope = akriv0.UniquePerNode
	l.SetConfiguration(perNode)
	check("cam", "a", "b", "c")
	check("cam-1", "a")
}

// pods is how many come to a crowded ledger.
const pods = 20

// crowded returns a ledger with devices that pods of several priorities hold.
func crowded(t *rapid.T, strategy Strategy) *Ledger {
	l := New()
	for _, name := range []string{"cam", "gps"} {
		c := configurationOf(name, akriv0.ConfigurationSpec{Capacity: 3})
		c.Spec.UniqueScope = rapid.SampledFrom([]akriv0.UniqueScope{akriv0.UniquePerContainer, akriv0.UniquePerPod, akriv0.UniquePerNode}).Draw(t, "scope")
		if rapid.IntRange(0, 3).Draw(t, "slots alone") == 3 {
			c.Spec.UniqueDevices = new(bool)
		}
		l.SetConfiguration(c)
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
		req := &Request{Pod: Pod{UID: name, Name: name, Priority: int32(rapid.IntRange(0, 3).Draw(t, "priority"))}, Containers: []ContainerRequest{needs(t)}}
		node := rapid.SampledFrom(worldNodes).Draw(t, "node")
		a, shortfall := l.Draft(strategy, req.Pod).Fit(node, req)
		switch {
		case shortfall == nil && len(a) > 0:
			l.Observe(req.Pod, node, a)
			if rapid.IntRange(0, 9).Draw(t, "ending") == 9 {
				l.SetTerminating(name)
			}
		case rapid.IntRange(0, 5).Draw(t, "preempts") == 5:
			candidates := slices.DeleteFunc(l.PotentialVictims(req).On(node), func(v Victim) bool { return v.Priority >= req.Priority })
			if p := l.Preempt(strategy, node, req, candidates); p != nil {
				l.Nominate(req.Pod, node, p.Assignment)
			}
		}
	}
	return l
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
