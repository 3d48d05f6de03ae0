package schedule

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
)

// Whatever a node says that it has and uses, and whatever a pod asks for: a
// container is given no more than it asked for, which is bounded, and only what is
// free. The node is not changed.
func FuzzPlace(f *testing.F) {
	const at, other = "resource/group/gpugrp1/0/gpugrp0/0/gpu/", "resource/group/gpugrp1/0/gpugrp0/1/gpu/"
	f.Add(at+"a/cards 1\n"+at+"a/memory 9\n"+at+"b/gpu.shared 4", at+"b/gpu.shared 1",
		"nvidia.com/gpu.shared 2\ngpu/replicas-same-gpu 1", "nvidia.com/gpu 1\ngpu/memory 9")
	f.Add(at+"a/mig/b/mig-x 1\n"+at+"a/mig/c/mig-x 1\n"+other+"a/mig/c/mig-x 9223372036854775807\n"+at+"a/mig/c/cards "+
		"-1",
		at+"a/mig/b/mig-x -9223372036854775808", "nvidia.com/mig-x 3",
		"resource/group/gpu/0/mig/0/mig-x 1\ngpu/memory 1")
	f.Add(at+"a/x 9223372036854775807\n"+at+"a/memory 9223372036854775807\n"+at+"/x 2\ngpu/fail-above-one/x 0", "",
		"nvidia.com/x 128\ngpu/memory 9223372036854775807\ngpu/replicas-same-gpu 1",
		"nvidia.com/x 2\ngpu/replicas-pack 1")
	f.Fuzz(func(t *testing.T, has, uses, running, init string) {
		node := &types.NodeInfo{Allocatable: readList(has), Used: readList(uses)}
		before := node.Clone()
		pod := types.NewPodInfo()
		pod.RunningContainers["main"] = asks(running)
		pod.RunningContainers["side"] = asks(running)
		pod.InitContainers["init"] = asks(init)
		if _, reason := place(node, pod); reason != nil {
			return
		}
		if !maps.Equal(node.Allocatable, before.Allocatable) || !maps.Equal(node.Used, before.Used) {
			t.Fatal("the node has changed")
		}
		given := types.ResourceList{}
		for name, c := range pod.Containers() {
			counts := map[string]int64{}
			for want, from := range c.AllocateFrom {
				leaf, ok := gpu.ParseName(from)
				if !ok || c.DevRequests[want] < 1 {
					t.Fatalf("%s gets %d of %q", name, c.DevRequests[want], from)
				}
				if free := node.Allocatable[from] - max(node.Used[from], 0); c.DevRequests[want] > free {
					t.Fatalf("%s gets %d of %s, of which %d are free", name, c.DevRequests[want], from, free)
				}
				if kind, ok := gpu.LeafKind(leaf.Leaf); ok {
					counts[kind] += c.DevRequests[want]
				}
				if name != "init" {
					given[from] += c.DevRequests[want]
				}
			}
			for kind, n := range counts {
				if r := gpu.KindResource(kind); n != max(c.Requests[r], c.KubeRequests[r]) &&
					len(labels(c.Requests)) == 0 {
					t.Fatalf("%s gets %d of %s: %v", name, n, r, c)
				}
			}
		}
		for from, n := range given {
			if free := node.Allocatable[from] - max(node.Used[from], 0); n > free {
				t.Fatalf("the pod gets %d of %s, of which %d are free", n, from, free)
			}
		}
	})
}

func asks(lines string) types.ContainerInfo {
	c := *types.NewContainerInfo()
	c.Requests = readList(lines)
	c.DevRequests = maps.Clone(c.Requests)
	return c
}

// readList reads lines of a name and an amount.
func readList(lines string) types.ResourceList {
	list := types.ResourceList{}
	for line := range strings.Lines(lines) {
		name, amount, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseInt(amount, 10, 64)
		list[types.ResourceName(name)] = n
	}
	return list
}
