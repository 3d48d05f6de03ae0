package schedule

import (
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// Whatever is free, no choice of as many GPUs is in fewer cliques, and none in as
// few of them is in fewer NUMA nodes. No GPU is chosen twice.
func TestChooseIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := rapid.Custom(machine).Draw(t, "free")
		n := rapid.IntRange(1, max(len(free), 1)).Draw(t, "n")
		used := rapid.IntRange(0, 2).Draw(t, "used")
		uses := func(g gpuGroup) bool { return g.node == fmt.Sprint(used) }
		got := Choose(free, n, uses)
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
			if seen[g] {
				t.Fatalf("%v twice", g)
			}
			seen[g] = true
		}
		cliques, nodes := groups(got)
		bestCliques, bestNodes := 99, 99
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
			if c, n := groups(of); c < bestCliques || c == bestCliques && n < bestNodes {
				bestCliques, bestNodes = c, n
			}
		}
		if cliques != bestCliques || nodes != bestNodes {
			t.Fatalf("%d of %v are in %d cliques of %d nodes, and can be in %d of %d", n, free, cliques, nodes, bestCliques, bestNodes)
		}
	})
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

func groups(gpus []gpu.GPU) (cliques, nodes int) {
	seen := map[gpuGroup]bool{}
	for _, g := range gpus {
		for _, of := range []gpuGroup{{g.Node, g.Clique}, {node: g.Node}} {
			if !seen[of] {
				seen[of] = true
				if of.clique == "" {
					nodes++
				} else {
					cliques++
				}
			}
		}
	}
	return cliques, nodes
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
		{1, gpuGroup{}, "7"},             // leaves no clique broken
		{2, gpuGroup{}, "56"},            // b is as tight, in a node with more free
		{2, gpuGroup{node: "0"}, "34"},   // the pod is in that node
		{1, gpuGroup{"0", "a"}, "0"},     // the pod is in that clique
		{3, gpuGroup{}, "012"},           // the one that has three
		{4, gpuGroup{}, "3012"},          // three, and one of the same node
		{5, gpuGroup{"1", "c"}, "34012"}, // not more nodes for what the pod uses
	} {
		got := ""
		for _, g := range Choose(free, tc.n, func(g gpuGroup) bool { return g == tc.uses }) {
			got += g.UUID
		}
		if got != tc.want {
			t.Errorf("%d, where the pod uses %v: %s, want %s", tc.n, tc.uses, got, tc.want)
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
				Choose(free, n-1, func(gpuGroup) bool { return false })
			}
		})
	}
}
