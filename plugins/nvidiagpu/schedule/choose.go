package schedule

import (
	"cmp"
	"slices"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// gpuGroup is a clique of GPUs, or a NUMA node if clique is "", or the MIG slices of
// a GPU, which only has its UUID.
type gpuGroup struct{ node, clique, gpu string }

func nodeOf(g gpu.GPU) gpuGroup   { return gpuGroup{node: g.Node} }
func cliqueOf(g gpu.GPU) gpuGroup { return gpuGroup{node: g.Node, clique: g.Clique} }
func slicesOf(g gpu.GPU) gpuGroup { return gpuGroup{gpu: g.UUID} }

// members are GPUs of one group.
type members struct {
	gpuGroup
	gpus []gpu.GPU
}

// Choose returns n of the free GPUs, or nil if there are not as many: in as few cliques as possible, and
// those in as few NUMA nodes as possible. Of equal choices it takes those that are best by order; then groups
// that the pod uses already; then those that leave the least behind, so that large groups stay whole for who
// needs them; then the first.
//
// uses says which groups the pod uses, and of which GPUs anybody uses a slice. pack is gpu.ReplicasPack.
func Choose(free []gpu.GPU, n int, pack bool, uses func(gpuGroup) bool) []gpu.GPU {
	if n <= 0 || n > len(free) {
		return nil
	}
	cliques := split(free, cliqueOf)
	// Of the cliques that it takes, all but one are needed whole. That one is
	// chosen last, among those that are large enough.
	whole, candidates, left := []members(nil), cliques, n
	if len(cliques[0].gpus) < n {
		chosen := fewest(cliques, n)
		smallest := len(chosen) - 1
		whole, candidates = chosen[:smallest], rivals(cliques, chosen)
		for _, c := range whole {
			left -= len(c.gpus)
		}
	}
	got := best(candidates, left, len(free), orderOf(free, pack, uses), uses)
	for _, c := range whole {
		got = append(got, c.gpus...)
	}
	return got
}

// split returns the groups of the GPUs, from the largest, then in the order of their first GPUs.
func split(gpus []gpu.GPU, groupOf func(gpu.GPU) gpuGroup) []members {
	var groups []members
	index := map[gpuGroup]int{}
	for _, g := range gpus {
		of := groupOf(g)
		i, ok := index[of]
		if !ok {
			i = len(groups)
			index[of] = i
			groups = append(groups, members{gpuGroup: of})
		}
		groups[i].gpus = append(groups[i].gpus, g)
	}
	slices.SortStableFunc(groups, larger)
	return groups
}

func larger(a, b members) int { return cmp.Compare(len(b.gpus), len(a.gpus)) }

// plan takes the largest cliques of some NUMA nodes.
type plan struct {
	sum  int // GPUs
	take []members
	rest *plan
}

// fewest returns the fewest cliques that have n GPUs together, of those the choice in the fewest NUMA nodes,
// and of those the one with the most GPUs; from the largest clique. It is a knapsack of the nodes: best[j][k]
// is the best plan of k cliques in j of the nodes so far. Of a node the largest cliques are the best to take.
func fewest(cliques []members, n int) []members {
	count, sum := 0, 0
	for sum < n {
		sum += len(cliques[count].gpus)
		count++
	}
	perNode := map[string][]members{}
	var nodes []string
	for _, c := range cliques {
		if perNode[c.node] == nil {
			nodes = append(nodes, c.node)
		}
		perNode[c.node] = append(perNode[c.node], c)
	}
	best := make([][]*plan, min(len(nodes), count)+1)
	for j := range best {
		best[j] = make([]*plan, count+1)
	}
	best[0][0] = &plan{}
	for _, node := range nodes {
		for j := len(best) - 2; j >= 0; j-- {
			for k := count - 1; k >= 0; k-- {
				from, sum := best[j][k], 0
				if from == nil {
					continue
				}
				for t, c := range perNode[node][:min(len(perNode[node]), count-k)] {
					sum += len(c.gpus)
					if to := &best[j+1][k+t+1]; *to == nil || (*to).sum < from.sum+sum {
						*to = &plan{from.sum + sum, perNode[node][:t+1], from}
					}
				}
			}
		}
	}
	for _, row := range best {
		if p := row[count]; p != nil && p.sum >= n {
			var chosen []members
			for ; p != nil; p = p.rest {
				chosen = append(chosen, p.take...)
			}
			slices.SortStableFunc(chosen, larger)
			return chosen
		}
	}
	return nil // not reached: the largest of all are a plan
}

// rivals returns the smallest of the chosen cliques and those that could be in
// its place: the others of the same NUMA nodes.
func rivals(cliques, chosen []members) []members {
	taken, nodes := map[gpuGroup]bool{}, map[string]bool{}
	for i, c := range chosen {
		taken[c.gpuGroup] = i < len(chosen)-1
		nodes[c.node] = true
	}
	var of []members
	for _, c := range cliques {
		if nodes[c.node] && !taken[c.gpuGroup] {
			of = append(of, c)
		}
	}
	return of
}

// best returns n GPUs of the best clique that has as many: see Choose. all is more GPUs than a NUMA node has.
func best(cliques []members, n, all int, take order, uses func(gpuGroup) bool) []gpu.GPU {
	inNode := map[string]int{}
	for _, c := range cliques {
		inNode[c.node] += len(c.gpus)
	}
	rank := func(c members) int {
		r := len(c.gpus)*(all+1) + inNode[c.node]
		if uses(gpuGroup{node: c.node}) {
			r -= (all + 1) * (all + 1)
		}
		if uses(c.gpuGroup) {
			r -= (all + 1) * (all + 1)
		}
		return r
	}
	var got []gpu.GPU
	var gotCost int64
	var gotRank int
	for _, c := range cliques {
		if len(c.gpus) < n {
			continue
		}
		gpus, cost := take(c.gpus, n)
		if r := rank(c); got == nil || cost < gotCost || cost == gotCost && r < gotRank {
			got, gotCost, gotRank = gpus, cost, r
		}
	}
	return got
}
