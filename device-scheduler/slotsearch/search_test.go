package slotsearch

import (
	"cmp"
	"fmt"
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// ask is a want: of the container, for the Instance of that name or for any.
type ask struct {
	container, count int
	instance         string
}

func problem(unique akriv0.UniqueScope, spans []Span, free map[string]int, asks ...ask) *Problem {
	p := &Problem{Unique: unique, Spans: spans, Order: func(a, b *Instance) int {
		return cmp.Or(cmp.Compare(b.Left(), a.Left()), cmp.Compare(a.Name, b.Name))
	}}
	by := map[string]*Instance{}
	for _, name := range []string{"a", "b", "c", "d"} {
		if free[name] > 0 {
			by[name] = &Instance{Name: name, Free: free[name]}
			p.Instances = append(p.Instances, by[name])
		}
	}
	for _, a := range asks {
		p.Wants = append(p.Wants, &Want{Container: a.container, Count: a.count, Instance: by[a.instance]})
	}
	return p
}

func (p *Problem) String() (got string) {
	for _, w := range p.Wants {
		for _, pick := range w.Got {
			got += fmt.Sprintf(" %d:%s%d", w.Container, pick.Instance.Name, pick.Slot)
		}
	}
	return got
}

func TestSolve(t *testing.T) {
	two := []Span{{0, 0}, {0, 0}}
	initAndApp := []Span{{0, 0}, {1, 1}}
	sidecarAndInit := []Span{{0, 1}, {0, 0}}
	one := map[string]int{"a": 1, "b": 1}
	for name, test := range map[string]struct {
		p    *Problem
		want string // " container:slot", empty when there is no way
	}{
		"slots alone count":                      {problem("", two, map[string]int{"a": 3}, ask{0, 2, ""}, ask{1, 1, ""}), " 0:a0 0:a1 1:a2"},
		"a container gets one of an Instance":    {problem(akriv0.UniquePerContainer, two, map[string]int{"a": 3}, ask{0, 2, ""}), ""},
		"a pod gets one of an Instance":          {problem(akriv0.UniquePerPod, two, map[string]int{"a": 3}, ask{0, 1, ""}, ask{1, 1, ""}), ""},
		"an init container leaves its slot":      {problem(akriv0.UniquePerPod, initAndApp, map[string]int{"a": 1}, ask{0, 1, ""}, ask{1, 1, ""}), " 0:a0 1:a0"},
		"but not one that was asked for by name": {problem("", initAndApp, map[string]int{"a": 1}, ask{0, 1, "a"}, ask{1, 1, ""}), ""},
		"a sidecar keeps its slot":               {problem("", sidecarAndInit, map[string]int{"a": 1}, ask{0, 1, ""}, ask{1, 1, ""}), ""},
		"there is no way":                        {problem(akriv0.UniquePerNode, two, one, ask{1, 1, "a"}, ask{0, 1, ""}, ask{1, 1, ""}), ""},
		"the first choice is undone":             {problem(akriv0.UniquePerNode, two, map[string]int{"a": 2, "b": 2}, ask{1, 1, "a"}, ask{0, 1, ""}, ask{1, 1, ""}), " 1:a0 0:a1 1:b0"},
		"a sidecar makes way for an init container": {problem(akriv0.UniquePerContainer, sidecarAndInit, map[string]int{"a": 2, "b": 1},
			ask{0, 1, ""}, ask{1, 1, "a"}, ask{1, 1, ""}), " 0:a1 1:a0 1:b0"},
	} {
		t.Run(name, func(t *testing.T) {
			short := test.p.Solve()
			if got := test.p.String(); got != test.want || (short == nil) != (test.want != "") {
				t.Errorf("Solve() is short of %v, and got%s; want%s", short, got, test.want)
			}
		})
	}
}

// hard is a problem without an answer: 40 containers ask for a slot each of 39 Instances.
func hard() *Problem {
	p := &Problem{Unique: akriv0.UniquePerNode, Order: func(a, b *Instance) int { return cmp.Compare(a.Name, b.Name) }}
	const containers = 40
	for i := range containers {
		p.Spans = append(p.Spans, Span{})
		if i < containers-1 {
			p.Instances = append(p.Instances, &Instance{Name: fmt.Sprintf("%02d", i), Free: containers})
		}
	}
	for i := range containers {
		for at, in := range p.Instances {
			if (at*7+i*11)%5 == 0 { // so that no two Instances are alike
				p.Wants = append(p.Wants, &Want{Container: i, Count: 1, Instance: in})
			}
		}
		p.Wants = append(p.Wants, &Want{Container: i, Count: 1})
	}
	return p
}

// TestSolveIsBounded: no pod keeps the search busy, and the answer says whether more steps might have helped.
func TestSolveIsBounded(t *testing.T) {
	alone := hard()
	if alone.Solve() == nil || !alone.GaveUp {
		t.Errorf("alone: gave up: %v", alone.GaveUp)
	}
	none := problem(akriv0.UniquePerNode, []Span{{0, 0}, {0, 0}}, map[string]int{"a": 1, "b": 1}, ask{1, 1, "a"},
		ask{0, 1, ""}, ask{1, 1, ""})
	if none.Solve() == nil || none.GaveUp {
		t.Errorf("all ways were tried: gave up: %v", none.GaveUp)
	}
	budget := &Budget{}
	for range 100 {
		p := hard()
		if p.Budget = budget; p.Solve() == nil || !p.GaveUp {
			t.Fatalf("with others: gave up: %v", p.GaveUp)
		}
	}
	if spent := budget.spent.Load(); spent < tryMaxSteps || spent > tryMaxSteps+maxSteps {
		t.Errorf("100 searches took %d steps, of at most %d", spent, tryMaxSteps)
	}
	wide := &Problem{Unique: akriv0.UniquePerNode, Budget: &Budget{}, Order: alone.Order}
	for i := range 1000 { // of which one is too many
		wide.Spans = append(wide.Spans, Span{})
		wide.Wants = append(wide.Wants, &Want{Container: i, Count: 1})
		if i > 0 {
			wide.Instances = append(wide.Instances, &Instance{Name: fmt.Sprintf("%03d", i), Free: 1})
		}
	}
	if wide.Solve() == nil || !wide.GaveUp {
		t.Errorf("1000 containers: gave up: %v", wide.GaveUp)
	}
	if spent := wide.Budget.spent.Load(); spent > maxSteps+maxSteps/5 { // with the first choice
		t.Errorf("a search for 1000 containers took %d steps, of at most %d", spent, maxSteps)
	}
	easy := problem(akriv0.UniquePerNode, []Span{{0, 0}}, map[string]int{"a": 1}, ask{0, 1, ""})
	if easy.Budget = budget; easy.Solve() != nil {
		t.Error("a problem that needs no second thought is not solved when the budget is spent")
	}
}

// TestFirstChoiceIsBounded: the first choice counts, too, once it takes longer than that of most pods, on many nodes
// together. Other pods' do not.
func TestFirstChoiceIsBounded(t *testing.T) {
	of := func(slots int, budget *Budget) *Problem {
		p := &Problem{Unique: akriv0.UniquePerContainer, Spans: []Span{{}}, Budget: budget,
			Wants: []*Want{{Count: slots}}, Order: hard().Order}
		for i := range slots {
			p.Instances = append(p.Instances, &Instance{Name: fmt.Sprintf("%03d", i), Free: 1})
		}
		return p
	}
	budget, gaveUp := &Budget{}, 0
	for range 100 {
		p := of(1000, budget)
		if short := p.Solve(); p.GaveUp != (short != nil) {
			t.Fatalf("short of %v, gave up: %v", short, p.GaveUp)
		} else if p.GaveUp {
			gaveUp++
		}
	}
	if spent := budget.spent.Load(); gaveUp == 0 || gaveUp == 100 || spent > tryMaxSteps+maxSteps {
		t.Errorf("%d of 100 nodes were given up, after %d steps of at most %d", gaveUp, spent, tryMaxSteps)
	}
	if p := of(100, budget); p.Solve() != nil {
		t.Errorf("a pod of 100 slots is given up: %v", p.GaveUp)
	}
	unspent := &Budget{}
	if of(100, unspent).Solve(); unspent.spent.Load() != 0 {
		t.Errorf("the first choice of 100 slots takes %d steps of the budget", unspent.spent.Load())
	}
}
