package schedule

import (
	"cmp"
	"slices"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// order takes n of a clique's GPUs, and returns what that costs: less is better.
type order func(clique []gpu.GPU, n int) (taken []gpu.GPU, cost int64)

// orderOf returns the order in which such GPUs are taken:
//
//   - Shared ones with the most free replicas, or the fewest to pack.
//   - MIG slices that break up the fewest GPUs of which nobody uses a slice; then
//     those of the fewest GPUs; then those that leave the least behind on one.
//   - Others from the first.
func orderOf(free []gpu.GPU, pack bool, uses func(gpuGroup) bool) order {
	switch {
	case slices.ContainsFunc(free, func(g gpu.GPU) bool { return g.Count > 1 }):
		return func(clique []gpu.GPU, n int) ([]gpu.GPU, int64) { return byReplicas(clique, n, pack) }
	case free[0].Slice != "":
		return func(clique []gpu.GPU, n int) ([]gpu.GPU, int64) { return fill(split(clique, slicesOf), n, uses) }
	}
	return func(clique []gpu.GPU, n int) ([]gpu.GPU, int64) { return clique[:n:n], 0 }
}

func byReplicas(clique []gpu.GPU, n int, pack bool) (taken []gpu.GPU, cost int64) {
	sign := int64(-1)
	if pack {
		sign = 1
	}
	taken = slices.Clone(clique)
	slices.SortStableFunc(taken, func(a, b gpu.GPU) int { return cmp.Compare(sign*a.Count, sign*b.Count) })
	taken = taken[:n:n]
	for _, g := range taken {
		cost += sign * g.Count
	}
	return taken, cost
}

// fill takes n of the slices of the GPUs, which are sorted from the one with the
// most. All slices are taken of the GPUs that have the most, so that they are few,
// and what is still missing of the smallest GPU that has enough.
func fill(gpus []members, n int, uses func(gpuGroup) bool) (taken []gpu.GPU, cost int64) {
	var idle, used []members
	need := n
	for _, g := range gpus {
		if uses(g.gpuGroup) {
			used, need = append(used, g), need-len(g.gpus)
		} else {
			idle = append(idle, g)
		}
	}
	broken, more, left := 0, 0, n
	for ; need > 0; broken++ {
		need, left = need-len(idle[broken].gpus), left-len(idle[broken].gpus)
	}
	for ; left > 0; more++ {
		left -= len(used[more].gpus)
	}
	chosen, candidates := append(idle[:broken:broken], used[:more]...), used[max(more-1, 0):]
	if more == 0 {
		candidates = idle[broken-1:]
	}
	last := candidates[0]
	left += len(last.gpus)
	for _, g := range candidates {
		if len(g.gpus) >= left && len(g.gpus) < len(last.gpus) {
			last = g
		}
	}
	for _, g := range chosen[:len(chosen)-1] {
		taken = append(taken, g.gpus...)
	}
	return append(taken, last.gpus[:left]...), int64(broken)*(gpu.Max+1) + int64(len(chosen))
}
