package slotsearch

import (
	"cmp"
	"slices"
	"sync/atomic"
)

const (
	// maxSteps bounds how often one search asks whether a container may use an Instance: some
	// milliseconds. A pod with more containers than anybody runs stays below.
	maxSteps = 200_000
	// tryMaxSteps bounds those of all searches of one try to schedule a pod: 70 ms of CPU. What
	// a pod's author writes may be hard to decide about on each of thousands of nodes.
	tryMaxSteps = 10 * maxSteps
	// freeSteps are those of each first choice that do not count: it takes no longer than what the framework
	// itself does on a node. A pod of 100 slots needs fewer.
	freeSteps = 1000
)

// Budget is what is left of the steps that one try to schedule a pod may take. Several searches may
// share it at the same time.
type Budget struct{ spent atomic.Int64 }

// left is how many steps a search may take, of so many at most. Without a budget each may take these.
func (b *Budget) left(most int) int {
	if b == nil {
		return most
	}
	return min(most, tryMaxSteps-int(b.spent.Load()))
}

// Spent reports whether no search may take any more steps.
func (b *Budget) Spent() bool { return b.left(1) <= 0 }

func (b *Budget) spend(steps int) {
	if b != nil {
		b.spent.Add(int64(steps))
	}
}

// Solve serves all wants. When it cannot, it returns the first one that is short.
func (p *Problem) Solve() (short *Want) {
	for _, s := range p.Spans {
		p.last = max(p.last, s.To)
	}
	wants := p.turns()
	s := &search{Problem: p, open: wants, limit: max(freeSteps, p.Budget.left(tryMaxSteps))}
	short = s.firstFit()
	p.Budget.spend(max(0, s.steps-freeSteps))
	if short == nil {
		p.number(wants)
		return nil
	}
	if p.GaveUp = s.steps > s.limit; p.GaveUp {
		return short
	}
	if short.Instance == nil && !p.interchangeable() {
		if p.GaveUp = p.Budget.Spent(); p.GaveUp {
			return short
		}
		s.steps, s.limit = 0, p.Budget.left(maxSteps)
		s.restart(wants)
		solved := s.solve()
		p.Budget.spend(s.steps)
		if solved {
			p.number(wants)
			return nil
		}
		p.GaveUp = s.steps > s.limit
	}
	return short
}

// turns are the wants in the order in which they are served at first. Requests by name come
// first, since they leave no choice. Of each kind those of containers that run until the end
// come before the others, which then use the same slots as far as they can.
func (p *Problem) turns() []*Want {
	if len(p.Wants) == 1 {
		return p.Wants
	}
	rank := func(w *Want) int {
		n := 2 * (1 - w.level())
		if p.Spans[w.Container].To < p.last {
			n++
		}
		return n
	}
	turns := slices.Clone(p.Wants)
	slices.SortStableFunc(turns, func(a, b *Want) int { return cmp.Compare(rank(a), rank(b)) })
	return turns
}

// search is a search under way.
type search struct {
	*Problem
	open  []*Want // not served yet
	steps int
	limit int // of steps
}

func (s *search) choose(w *Want, in *Instance) {
	s.add(in, w.Container, w.level())
	w.chosen = append(w.chosen, in)
}

func (s *search) undo(w *Want) {
	last := len(w.chosen) - 1
	s.remove(w.chosen[last], w.Container, w.level())
	w.chosen = w.chosen[:last]
}

// firstFit has each want in turn take the first Instances. It returns the one that is short, or at which there
// were too many steps.
func (s *search) firstFit() *Want {
	for _, w := range s.open {
		for len(w.chosen) < w.Count {
			if s.steps += 1 + len(s.Instances)/32; s.steps > s.limit { // to pass over Instances, and to reorder them
				return w
			}
			in := s.reusable(w)
			if in == nil {
				in = s.first(w)
			}
			if in == nil {
				return w
			}
			left := in.Left()
			if s.choose(w, in); in.Left() < left {
				s.reorder(in)
			}
		}
	}
	return nil
}

// reusable returns an Instance of which the container can use a slot that the pod has
// anyway, nil if there is none.
func (s *search) reusable(w *Want) *Instance {
	if s.Spans[w.Container].To == s.last {
		return nil // the slots so far are in use while it runs
	}
	for _, o := range s.Wants {
		for _, in := range o.chosen {
			s.steps++
			if o.level() == w.level() && (w.Instance == nil || w.Instance == in) && s.keeps(in, w) && s.allows(in, w.Container, w.level()) {
				return in
			}
		}
	}
	return nil
}

// keeps reports whether the pod needs no more slots of the Instance when the container uses
// one.
func (s *search) keeps(in *Instance, w *Want) bool {
	return in.slotsWith(w.level(), s.Spans[w.Container]) == in.slots[w.level()]
}

// first returns the Instance from which the container takes a slot, nil if there is none.
func (s *search) first(w *Want) *Instance {
	if in := w.Instance; in != nil {
		if s.allows(in, w.Container, byName) {
			return in
		}
		return nil
	}
	for _, in := range s.Instances {
		if in.Left() > 0 && s.may(w, in) {
			return in
		}
	}
	return nil
}

// reorder moves an Instance of which a slot was taken to its new place in the order.
func (s *search) reorder(in *Instance) {
	if len(s.Instances) == 1 {
		return
	}
	at := slices.Index(s.Instances, in)
	rest := slices.Delete(s.Instances, at, at+1)
	to, _ := slices.BinarySearchFunc(rest, in, s.Order)
	s.Instances = slices.Insert(rest, to, in)
}

// restart forgets what was chosen for those that take any Instance.
func (s *search) restart(wants []*Want) {
	s.open = nil
	for _, w := range slices.Backward(wants) {
		if w.Instance == nil {
			w.first = len(w.chosen)
			for len(w.chosen) > 0 {
				s.undo(w)
			}
			s.open = append(s.open, w)
		}
	}
	slices.Reverse(s.open)
}

// solve serves the open wants, the hardest first.
func (s *search) solve() bool {
	if len(s.open) == 0 {
		return true
	}
	at, servable := s.hardest()
	if !servable {
		return false
	}
	w := s.open[at]
	open := slices.Delete(slices.Clone(s.open), at, at+1)
	s.open = open
	if s.serve(w, s.options(w)) {
		return true
	}
	s.open = append(open, w)
	return false
}

// serve has the want choose some of the options, and the open ones the rest.
func (s *search) serve(w *Want, options []*Instance) bool {
	missing := w.Count - len(w.chosen)
	if missing == 0 {
		return s.solve()
	}
	for i, in := range options {
		if len(options)-i < missing || s.steps > s.limit {
			return false
		}
		if slices.ContainsFunc(options[:i], in.alike) {
			continue // it has been tried
		}
		s.choose(w, in)
		if s.serve(w, options[i+1:]) {
			return true
		}
		s.undo(w)
	}
	return false
}

// hardest returns which of the open wants has the fewest options to spare, and whether each
// has enough.
func (s *search) hardest() (at int, servable bool) {
	least := 0
	for i, w := range s.open {
		if s.steps > s.limit {
			return 0, false
		}
		spare := -w.Count
		for _, in := range s.Instances {
			if s.may(w, in) {
				spare++
			}
		}
		if spare < 0 {
			return 0, false
		}
		if i == 0 || spare < least {
			at, least = i, spare
		}
	}
	return at, true
}

// options are the Instances for a want, those first that leave the open ones the most.
func (s *search) options(w *Want) []*Instance {
	type option struct {
		*Instance
		spoils int // open wants that cannot have it then
		takes  int // slots that the pod has not taken yet
		left   int
	}
	serves := func(in *Instance) (n int) { // open wants
		for _, open := range s.open {
			if s.may(open, in) {
				n++
			}
		}
		return n
	}
	var options []option
	for _, in := range s.Instances {
		if s.steps > s.limit {
			return nil
		}
		if !s.may(w, in) {
			continue
		}
		o := option{Instance: in, spoils: serves(in), left: in.Left()}
		s.add(in, w.Container, anyInstance)
		o.takes = o.left - in.Left()
		o.spoils -= serves(in)
		s.remove(in, w.Container, anyInstance)
		options = append(options, o)
	}
	slices.SortStableFunc(options, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.spoils, b.spoils), cmp.Compare(a.takes, b.takes), cmp.Compare(b.left, a.left))
	})
	sorted := make([]*Instance, len(options))
	for i, o := range options {
		sorted[i] = o.Instance
	}
	return sorted
}

func (s *search) may(w *Want, in *Instance) bool {
	s.steps += 1 + (s.Spans[w.Container].To-s.Spans[w.Container].From)/8
	return s.allows(in, w.Container, anyInstance)
}
