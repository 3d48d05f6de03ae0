package gpu

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/types"
)

// Every two GPUs of a clique reach each other directly, a GPU that could be in a
// larger clique is, and a clique is in one NUMA node's group, with all of that
// NUMA node.
func TestGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 9).Draw(t, "gpus")
		links := map[string]Link{}
		for i := range n {
			for j := i + 1; j < n; j++ {
				links[fmt.Sprint(i, j)] = Link{
					NVLinks: rapid.IntRange(0, 2).Draw(t, fmt.Sprintf("nvlinks %d %d", i, j)) / rapid.IntRange(1, 3).Draw(t, "sparse"),
					Path:    Path(rapid.IntRange(int(AcrossNodes), int(SameSwitch)).Draw(t, fmt.Sprintf("path %d %d", i, j))),
				}
			}
		}
		link := func(i, j int) Link { return links[fmt.Sprint(min(i, j), max(i, j))] }
		nodes, cliques := Group(n, link)
		if len(nodes) != n || len(cliques) != n {
			t.Fatal(nodes, cliques)
		}
		nvlink := func(i int) bool {
			for j := range n {
				if j != i && link(i, j).NVLinks > 0 {
					return true
				}
			}
			return false
		}
		direct := func(i, j int) bool {
			return link(i, j).NVLinks > 0 || !nvlink(i) && !nvlink(j) && link(i, j).Path == SameSwitch
		}
		for i := range n {
			for j := range n {
				switch {
				case i == j:
				case cliques[i] == cliques[j] && !direct(i, j):
					t.Fatalf("%d and %d are in clique %s", i, j, cliques[i])
				case cliques[i] == cliques[j] && nodes[i] != nodes[j]:
					t.Fatalf("%d and %d are in one clique and in NUMA nodes %s and %s", i, j, nodes[i], nodes[j])
				case link(i, j).Path >= SameNode && nodes[i] != nodes[j]:
					t.Fatalf("%d and %d share a NUMA node and are in %s and %s", i, j, nodes[i], nodes[j])
				}
			}
			// No clique can take i as well and be larger than the one that i is in.
			for _, c := range cliques {
				all, size, mine := true, 0, 0
				for j := range n {
					if cliques[j] == c {
						size++
						all = all && direct(i, j)
					}
					if cliques[j] == cliques[i] {
						mine++
					}
				}
				if c != cliques[i] && all && size+1 > max(mine, size) && mine == 1 {
					t.Fatalf("%d is alone and fits into clique %s of %v", i, c, cliques)
				}
			}
		}
	})
}

// A graph that no machine has, in which the largest clique is hard to find, costs
// no time.
func TestGroupIsBounded(t *testing.T) {
	const n = 64
	_, cliques := Group(n, func(i, j int) Link {
		if i/2 == j/2 {
			return Link{}
		}
		return Link{NVLinks: 1}
	})
	if got := len(slices.Compact(slices.Sorted(slices.Values(cliques)))); got != 2 {
		t.Errorf("%d cliques of %d GPUs of which each lacks a link to one, want 2", got, n)
	}
}

func TestParseName(t *testing.T) {
	for resource, want := range map[types.ResourceName]Name{
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/cards":  {"0", "1", "GPU-x", Cards},
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/memory": {"0", "1", "GPU-x", Bytes},
	} {
		got, ok := ParseName(resource)
		if !ok || got != want || got.Resource() != resource {
			t.Errorf("%s: %v %v", resource, got, ok)
		}
	}
	for _, resource := range []types.ResourceName{
		"", "nvidia.com/gpu", "resource/group/gpu/0/cards", "resource/group/gpugrp1/0/gpugrp0/1/gpu/x/fans",
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/x/y/cards", "resource/group/gpugrp0/0/gpugrp1/1/gpu/x/cards",
	} {
		if got, ok := ParseName(resource); ok {
			t.Errorf("%s: %v", resource, got)
		}
	}
}

// What a node says it has is the node's word: it may say anything.
func TestFree(t *testing.T) {
	allocatable := types.ResourceList{}
	for i := range Max + 10 {
		Write(allocatable, []GPU{{UUID: fmt.Sprintf("%03d", i), Node: "0", Clique: "0", Memory: 8}})
	}
	first := GPU{UUID: "000", Node: "0", Clique: "0"}
	used := types.ResourceList{
		first.Leaf(Cards): 1, GPU{UUID: "001", Node: "0", Clique: "0"}.Leaf(Bytes): 9, GPU{UUID: "002", Node: "0", Clique: "0"}.Leaf(Bytes): -9}
	allocatable[GPU{UUID: "003", Node: "0", Clique: "0"}.Leaf(Cards)] = -1
	free := Free(allocatable, used)
	if len(free) != Max || free[0].UUID != "001" || free[0].Memory != 0 || free[1].Memory != 8 || free[2].UUID != "004" {
		t.Errorf("%d, the first %v", len(free), free[:3])
	}
	if inUse, all := Count(allocatable, used); inUse != 1 || all != Max+10 {
		t.Errorf("%d of %d", inUse, all)
	}
}
