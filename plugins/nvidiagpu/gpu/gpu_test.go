package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"
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
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/cards":      {"0", "1", "GPU-x", "", Cards},
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/memory":     {"0", "1", "GPU-x", "", Bytes},
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/gpu.shared": {"0", "1", "GPU-x", "", "gpu.shared"},
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/mig/MIG-y/mig-1g.10gb": {"0", "1", "GPU-x", "MIG-y",
			"mig-1g.10gb"},
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-x/mig/MIG-y/memory": {"0", "1", "GPU-x", "MIG-y", Bytes},
	} {
		got, ok := ParseName(resource)
		if !ok || got != want || got.Resource() != resource {
			t.Errorf("%s: %v %v", resource, got, ok)
		}
	}
	for _, resource := range []types.ResourceName{
		"", "nvidia.com/gpu", "resource/group/gpu/0/cards", "resource/group/gpugrp1/0/gpugrp0/1/gpu/x",
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/x/y/cards", "resource/group/gpugrp0/0/gpugrp1/1/gpu/x/cards",
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/x/fan/y/cards", "resource/group/gpugrp1/0/gpugrp0/1/gpu/x/mig//cards",
		"resource/group/gpugrp1/0/gpugrp0/1/gpu/x/mig/y/cards/z",
	} {
		if got, ok := ParseName(resource); ok {
			t.Errorf("%s: %v", resource, got)
		}
	}
}

// A kind and its resource, and a kind and its leaf, are each other's reverse, and
// no two kinds share a leaf.
func TestKind(t *testing.T) {
	for kind, leaf := range map[string]string{
		"gpu": Cards, "gpu.shared": "gpu.shared", "mig-1g.10gb.me": "mig-1g.10gb.me",
		strings.Repeat("a", 63): strings.Repeat("a", 63),
	} {
		if got, ok := Kind(KindResource(kind)); !ok || got != kind || Leaf(kind) != leaf {
			t.Errorf("%s: %q %v, its leaf %q", kind, got, ok, Leaf(kind))
		}
		if got, ok := LeafKind(leaf); !ok || got != kind {
			t.Errorf("leaf %s: %q %v", leaf, got, ok)
		}
	}
	for _, name := range []types.ResourceName{
		"", "gpu", "nvidia.com/", "amd.com/gpu", "nvidia.com/cards", "nvidia.com/memory", "nvidia.com/EnumX",
		"nvidia.com/a/b", "nvidia.com/a b", "nvidia.com/-a", KindResource(strings.Repeat("a", 64)),
	} {
		if got, ok := Kind(name); ok {
			t.Errorf("%q: kind %q", name, got)
		}
	}
	for _, leaf := range []string{Bytes, DefaultKind, "enumType", "a b"} {
		if kind, ok := LeafKind(leaf); ok {
			t.Errorf("leaf %s: kind %q", leaf, kind)
		}
	}
}

// What is written is read again: of each kind its own, as often as it is free.
func TestFreeOfKind(t *testing.T) {
	node := types.ResourceList{}
	in := func(g GPU) GPU {
		g.Node, g.Clique, g.Memory = "0", "1", 8
		return g
	}
	whole, shared := in(GPU{UUID: "a"}), in(GPU{UUID: "b", Kind: "gpu.shared", Count: 4})
	slices := []GPU{in(GPU{UUID: "c", Slice: "m2", Kind: "mig-x"}), in(GPU{UUID: "c", Slice: "m1", Kind: "mig-x"})}
	Write(node, append(slices, whole, shared))
	used := types.ResourceList{shared.Leaf("gpu.shared"): 3, shared.Leaf(Bytes): 6, slices[0].Leaf("mig-x"): 1}
	for kind, want := range map[string]string{
		"gpu": "a 1 8", "gpu.shared": "b 1 2", "mig-x": "m1 1 8", "": "a 1 8", "gpu.shared.x": "",
	} {
		got := ""
		for _, g := range Free(node, used, kind) {
			got += fmt.Sprint(g.ID(), " ", g.Count, " ", g.Memory, " ")
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%q: %s, want %s", kind, got, want)
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
	free := Free(allocatable, used, DefaultKind)
	if len(free) != Max || free[0].UUID != "001" || free[0].Memory != 0 || free[1].Memory != 8 || free[2].UUID != "004" {
		t.Errorf("%d, the first %v", len(free), free[:3])
	}
	allocatable[first.Leaf("x")], used[first.Leaf("x")] = math.MaxInt64, -1
	allocatable[GPU{}.Leaf("x")], used[GPU{}.Leaf("x")] = math.MaxInt64, math.MaxInt64
	if got := Free(allocatable, used, "x"); len(got) != 1 || got[0].Count != maxCount {
		t.Error(got)
	}
}
