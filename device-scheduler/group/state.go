package group

import (
	"math"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Tree is a node's group resources, parsed: what is the same for all pods. It
// is immutable, so that any number of goroutines may use it.
type Tree struct {
	tree
	byName  map[types.ResourceName]int
	scorers []int32 // by leaf
	unused  []leafState
}

// leafState is what is used of a leaf, and the score that follows.
type leafState struct {
	held
	score float64
}

// NewTree parses the node's Allocatable and Scorer.
func NewTree(node *types.NodeInfo) *Tree {
	t := &Tree{tree: parse(node.Allocatable)}
	t.byName = make(map[types.ResourceName]int, len(t.leaves))
	t.scorers = make([]int32, len(t.leaves))
	t.unused = make([]leafState, len(t.leaves))
	for i, l := range t.leaves {
		t.byName[l.name] = i
		t.scorers[i] = resource.Scorer(l.name, node.Scorer[l.name])
		t.unused[i].score = score(t.scorers[i], l.count, held{})
	}
	return t
}

// Matches reports whether NewTree(node) would give an equal tree.
func (t *Tree) Matches(node *types.NodeInfo) bool {
	n := 0
	for name, count := range node.Allocatable {
		if !resource.IsGroupResourceName(name) {
			continue
		}
		i, ok := t.byName[name]
		if !ok || t.leaves[i].count != count || t.scorers[i] != resource.Scorer(name, node.Scorer[name]) {
			return false
		}
		n++
	}
	return n == len(t.leaves)
}

// state is what is used of a node while a pod is being placed. Every change is
// logged, so that an attempt costs what it touches, not a copy of the node.
type state struct {
	node   *Tree
	leaves []leafState
	log    []change
}

type change struct {
	leaf   int
	before leafState
}

// newState starts with what the node's pods use. Negative amounts, which only a
// fault elsewhere can have left, count as none.
func newState(node *Tree, used types.ResourceList) state {
	s := state{node: node, leaves: append([]leafState(nil), node.unused...)}
	for name, n := range used {
		if i, ok := node.byName[name]; ok && n > 0 && node.scorers[i] != resource.EnumScorer {
			s.leaves[i].node = n
			s.leaves[i].score = score(node.scorers[i], node.leaves[i].count, s.leaves[i].held)
		}
	}
	return s
}

// take gives n of the leaf to the container that is being placed. It changes
// nothing if that does not fit.
func (s *state) take(i int, n int64, init bool) bool {
	scorer, capacity := s.node.scorers[i], s.node.leaves[i].count
	h, ok := take(scorer, capacity, s.leaves[i].held, n, init)
	if !ok {
		return false
	}
	s.log = append(s.log, change{i, s.leaves[i]})
	s.leaves[i] = leafState{h, score(scorer, capacity, h)}
	return true
}

// undo takes back all changes after the first n.
func (s *state) undo(n int) {
	for len(s.log) > n {
		last := s.log[len(s.log)-1]
		s.leaves[last.leaf] = last.before
		s.log = s.log[:len(s.log)-1]
	}
}

// nextContainer ends the placing of a container: what it took stays taken.
func (s *state) nextContainer() {
	for _, c := range s.log {
		s.leaves[c.leaf].container = 0
	}
	s.log = s.log[:0]
}

// mean returns the mean score of the leaves [lo, hi). It adds up with Neumaier's
// correction: groups whose leaves have the same scores in another order must
// tie, and plain sums of the same numbers can differ in the last bit.
func (s *state) mean(lo, hi int) float64 {
	sum, lost := 0.0, 0.0
	for i := lo; i < hi; i++ {
		x := s.leaves[i].score
		t := sum + x
		if math.Abs(sum) >= math.Abs(x) {
			lost += (sum - t) + x
		} else {
			lost += (x - t) + sum
		}
		sum = t
	}
	return (sum + lost) / float64(hi-lo)
}
