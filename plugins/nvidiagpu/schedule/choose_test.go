package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// Whatever is free, no choice of as many GPUs is in fewer cliques, and none in as
// few of them is in fewer NUMA nodes. Of those that are in one clique none is
// better in the order of slices or replicas. No GPU is chosen twice.
func TestChooseIsBest(t *testing.T) {
	t.Run("whole", rapid.MakeCheck(func(t *rapid.T) { chooseIsBest(t, machine) }))
	t.Run("slices", rapid.MakeCheck(func(t *rapid.T) { chooseIsBest(t, partitioned) }))
	t.Run("replicas", rapid.MakeCheck(func(t *rapid.T) { chooseIsBest(t, shared) }))
}

func chooseIsBest(t *rapid.T, draw func(*rapid.T) []gpu.GPU) {
	free := rapid.Custom(draw).Draw(t, "free")
	n := rapid.IntRange(1, max(len(free), 1)).Draw(t, "n")
	used := rapid.IntRange(0, 2).Draw(t, "used")
	inUse := rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(t, "in use")
	pack := rapid.Bool().Draw(t, "pack")
	uses := func(g gpuGroup) bool {
		i, err := strconv.Atoi(g.gpu)
		return g.node == fmt.Sprint(used) || err == nil && inUse[i]
	}
	got := Choose(free, n, pack, uses)
	if len(free) == 0 {
		if got != nil {
			t.Fatal(got)
		}
		return
	}
	if len(got) != n {
		t.Fatalf("%d GPUs of %d, want %d", len(got), len(free), n)
	}
	seen := map[gpu.GPU]bool{}
	for _, g := range got {
		if seen[g] || !slices.Contains(free, g) {
			t.Fatalf("%v twice, or not free", g)
		}
		seen[g] = true
	}
	best := quality{9, 9, math.MaxInt64}
	for set := range 1 << len(free) {
		if bits.OnesCount(uint(set)) != n {
			continue
		}
		var of []gpu.GPU
		for i, g := range free {
			if set&(1<<i) != 0 {
				of = append(of, g)
			}
		}
		if q := qualityOf(of, pack, uses); q.less(best) {
			best = q
		}
	}
	if q := qualityOf(got, pack, uses); best.less(q) {
		t.Fatalf("%d of %v: %v has %v, and can have %v", n, free, got, q, best)
	}
}

// quality is that of a choice: less is better.
type quality struct {
	cliques, nodes int
	cost           int64 // of one that is in one clique
}

func (q quality) less(other quality) bool {
	return cmp.Or(cmp.Compare(q.cliques, other.cliques), cmp.Compare(q.nodes, other.nodes),
		cmp.Compare(q.cost, other.cost)) < 0
}

func qualityOf(gpus []gpu.GPU, pack bool, uses func(gpuGroup) bool) quality {
	cliques, nodes := map[gpuGroup]bool{}, map[gpuGroup]bool{}
	slicesOfGPU, broken := map[gpuGroup]bool{}, map[gpuGroup]bool{}
	replicas := int64(0)
	for _, g := range gpus {
		cliques[cliqueOf(g)], nodes[nodeOf(g)] = true, true
		replicas += g.Count
		if g.Slice != "" {
			slicesOfGPU[slicesOf(g)] = true
			broken[slicesOf(g)] = !uses(slicesOf(g))
		}
	}
	q := quality{cliques: len(cliques), nodes: len(nodes)}
	maps.DeleteFunc(broken, func(_ gpuGroup, is bool) bool { return !is })
	switch {
	case len(cliques) > 1:
	case replicas > 0 && pack:
		q.cost = replicas
	case replicas > 0:
		q.cost = -replicas
	default:
		q.cost = int64(100*len(broken) + len(slicesOfGPU))
	}
	return q
}

// machine draws what is free of up to 10 GPUs in up to 3 NUMA nodes.
func machine(t *rapid.T) []gpu.GPU {
	var free []gpu.GPU
	for node := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		for clique := range rapid.IntRange(1, 3).Draw(t, "cliques") {
			for range rapid.IntRange(0, 4).Draw(t, "gpus") {
				if len(free) < 10 {
					free = append(free, gpu.GPU{UUID: fmt.Sprint(len(free)), Node: fmt.Sprint(node), Clique: fmt.Sprintf("%d%d", node, clique)})
				}
			}
		}
	}
	return free
}

// partitioned draws up to 10 slices of such GPUs.
func partitioned(t *rapid.T) []gpu.GPU {
	var free []gpu.GPU
	for _, g := range machine(t) {
		for i := range rapid.IntRange(0, 5).Draw(t, "slices") {
			if g.Slice = fmt.Sprint(g.UUID, ".", i); len(free) < 10 {
				free = append(free, g)
			}
		}
	}
	return free
}

// shared draws such GPUs with replicas.
func shared(t *rapid.T) []gpu.GPU {
	free := machine(t)
	for i := range free {
		free[i].Count = rapid.Int64Range(1, 4).Draw(t, "replicas")
	}
	if len(free) > 0 {
		free[0].Count = 4 // so that they are seen to be shared
	}
	return free
}

func TestChooseTies(t *testing.T) {
	var free []gpu.GPU
	for i, c := range []string{"a", "a", "a", "b", "b", "c", "c", "d"} {
		node := "0"
		if i >= 5 {
			node = "1"
		}
		free = append(free, gpu.GPU{UUID: fmt.Sprint(i), Node: node, Clique: c})
	}
	for _, tc := range []struct {
		n    int
		uses gpuGroup
		want string
	}{
		{1, gpuGroup{}, "7"},                           // leaves no clique broken
		{2, gpuGroup{}, "56"},                          // b is as tight, in a node with more free
		{2, gpuGroup{node: "0"}, "34"},                 // the pod is in that node
		{1, gpuGroup{node: "0", clique: "a"}, "0"},     // the pod is in that clique
		{3, gpuGroup{}, "012"},                         // the one that has three
		{4, gpuGroup{}, "3012"},                        // three, and one of the same node
		{5, gpuGroup{node: "1", clique: "c"}, "34012"}, // not more nodes for what the pod uses
	} {
		got := ""
		for _, g := range Choose(free, tc.n, false, func(g gpuGroup) bool { return g == tc.uses }) {
			got += g.UUID
		}
		if got != tc.want {
			t.Errorf("%d, where the pod uses %v: %s, want %s", tc.n, tc.uses, got, tc.want)
		}
	}
}

// Which slices: cliques are a, b; a word is a GPU's clique, its number, how many
// slices are free of it, and "+" if somebody uses others of it.
func TestChooseSlices(t *testing.T) {
	for _, tc := range []struct {
		free string
		n    int
		want string
	}{
		{"a03 a12", 2, "1 1"},        // leaves none behind
		{"a01+ a11+ b22", 2, "0 1"},  // breaks up no GPU
		{"a01+ a11+ b23+", 2, "2 2"}, // of one GPU
		{"a03+ a14", 4, "1 1 1 1"},   // all of one
		{"a03+ a14", 5, "0 1 1 1 1"}, // all of one, and the others of one in use
		{"a01+ a13+ a22+", 2, "2 2"}, // the smallest that has enough
		{"a04 b13", 5, "0 0 0 0 1"},  // two cliques at the least
	} {
		var free []gpu.GPU
		used := map[string]bool{}
		for _, w := range strings.Fields(tc.free) {
			for i := range int(w[2] - '0') {
				free = append(free, gpu.GPU{UUID: w[1:2], Slice: fmt.Sprint(w[1:2], ".", i), Node: "0", Clique: w[:1]})
			}
			used[w[1:2]] = strings.HasSuffix(w, "+")
		}
		var got []string
		for _, g := range Choose(free, tc.n, false, func(g gpuGroup) bool { return used[g.gpu] }) {
			got = append(got, g.UUID)
		}
		if slices.Sort(got); strings.Join(got, " ") != tc.want {
			t.Errorf("%d of %s: %v, want %s", tc.n, tc.free, got, tc.want)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{8, 16, 64, gpu.Max} {
		var free []gpu.GPU
		for i := range n {
			free = append(free, gpu.GPU{UUID: fmt.Sprint(i), Node: fmt.Sprint(i / 4), Clique: fmt.Sprint(i / 2)})
		}
		b.Run(fmt.Sprintf("gpus=%d", n), func(b *testing.B) {
			for b.Loop() {
				Choose(free, n-1, false, func(gpuGroup) bool { return false })
			}
		})
	}
}
