package gpu

import (
	"slices"
	"strconv"
)

// Path is how far two GPUs are from each other without NVLink.
type Path int

// The paths, from the longest. The zero value is what is not known.
const (
	AcrossNodes Path = iota // between NUMA nodes
	SameNode                // through the host bridge of one NUMA node, or between its bridges
	SameSwitch              // through PCIe switches alone
)

// Link is how two GPUs are connected.
type Link struct {
	// NVLinks is how many of them connect the two, directly or through a switch.
	NVLinks int
	Path    Path
}

// Group puts the GPUs into groups and returns each one's: the index of its NUMA node and of its clique, both
// counted from 0 in the order of the GPUs. link is asked for each two GPUs i < j of n.
//
// Cliques are taken from the largest; of two of one size, that with more NVLinks
// goes first, then that with the first GPUs. So a GPU that could be in two
// cliques, as in the hybrid cube mesh of a DGX-1, is in the better one.
func Group(n int, link func(i, j int) Link) (nodes, cliques []string) {
	links := make([][]Link, n)
	nvlink := make([]bool, n)
	for i := range links {
		links[i] = make([]Link, n)
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			l := link(i, j)
			links[i][j], links[j][i] = l, l
			if l.NVLinks > 0 {
				nvlink[i], nvlink[j] = true, true
			}
		}
	}
	adjacent := func(i, j int) bool {
		l := links[i][j]
		return l.NVLinks > 0 || !nvlink[i] && !nvlink[j] && l.Path == SameSwitch
	}
	clique := partition(n, adjacent, func(i, j int) int { return links[i][j].NVLinks })

	// A NUMA node's groups are those that one of its GPUs is in.
	node := make([]int, n)
	for i := range n {
		node[i] = i
		for j, was := range node[:i] {
			if clique[i] != clique[j] && links[i][j].Path < SameNode {
				continue
			}
			for k := range i {
				if node[k] == was {
					node[k] = i
				}
			}
		}
	}
	return number(node), number(clique)
}

// partition splits n vertices into cliques and returns the clique of each.
func partition(n int, adjacent func(i, j int) bool, weight func(i, j int) int) []int {
	clique := make([]int, n)
	left := make([]int, n)
	for i := range left {
		left[i] = i
	}
	for next := 0; len(left) > 0; next++ {
		s := search{adjacent: adjacent, weight: weight}
		s.grow(nil, left, 0)
		for _, i := range s.best {
			clique[i] = next
		}
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(s.best, i) })
	}
	return clique
}

// search finds the best clique.
type search struct {
	adjacent func(i, j int) bool
	weight   func(i, j int) int

	best       []int
	bestWeight int
	steps      int
}

// maxSteps bounds a search in a graph that no machine has. The best so far is a clique then as well.
const maxSteps = 1 << 16

// grow tries to add each of the candidates, all adjacent to all of the clique.
func (s *search) grow(clique, candidates []int, weight int) {
	if len(clique) > len(s.best) || len(clique) == len(s.best) && weight > s.bestWeight {
		s.best, s.bestWeight = slices.Clone(clique), weight
	}
	for k, i := range candidates {
		if s.steps++; len(clique)+len(candidates)-k < len(s.best) || s.steps > maxSteps {
			return
		}
		var next []int
		for _, j := range candidates[k+1:] {
			if s.adjacent(i, j) {
				next = append(next, j)
			}
		}
		more := weight
		for _, j := range clique {
			more += s.weight(j, i)
		}
		s.grow(append(clique[:len(clique):len(clique)], i), next, more)
	}
}

// number renames groups in the order of their first members.
func number(groups []int) []string {
	names := map[int]string{}
	numbered := make([]string, len(groups))
	for i, group := range groups {
		if names[group] == "" {
			names[group] = strconv.Itoa(len(names))
		}
		numbered[i] = names[group]
	}
	return numbered
}
