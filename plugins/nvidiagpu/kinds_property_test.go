package nvidiagpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/schedule"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Whatever pods come and go on a node with GPUs, slices and shared GPUs: no slice
// is in two pods, no GPU has more replicas in use than it has, nor more memory;
// each container gets as many as it asked for, on different GPUs unless it wants
// one; and a pod of one container is placed whenever there are enough.
func TestNoSliceTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, err := host.New([]devicescheduler.DeviceScheduler{schedule.Scheduler{}}, host.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := drawKinds(t)
		info := types.NewNodeInfo()
		gpu.Write(info.Allocatable, all)
		if err := h.AddNode("node", info); err != nil {
			t.Fatal(err)
		}
		runs := map[string]*types.PodInfo{}
		for step := range 12 {
			if len(runs) > 0 && rapid.IntRange(0, 3).Draw(t, "action") == 0 {
				uid := rapid.SampledFrom(slices.Sorted(maps.Keys(runs))).Draw(t, "goes")
				delete(runs, uid)
				if err := h.Return("node", uid); err != nil {
					t.Fatal(err)
				}
				continue
			}
			pod := drawKindsPod(t)
			node := h.Node("node").Info()
			got, err := h.Allocate(h.Node("node"), pod)
			if err != nil {
				if enoughFor(node, pod) {
					t.Fatalf("%v is not placed: %v", pod, err)
				}
				continue
			}
			uid := fmt.Sprint(step)
			if err := h.Take("node", uid, got); err != nil {
				t.Fatal(err)
			}
			runs[uid] = got
			for leaf, n := range h.Node("node").Info().Used {
				if n > info.Allocatable[leaf] {
					t.Fatalf("%d of %s are used", n, leaf)
				}
			}
			for name, c := range got.Containers() {
				checkGiven(t, c, *pod.GetContainerInPod(name))
			}
		}
	})
}

// checkGiven looks at what a container got for what it asked for.
func checkGiven(t *rapid.T, got, asked types.ContainerInfo) {
	count, gpus := map[string]int64{}, map[string]int{}
	for want, from := range got.AllocateFrom {
		name, _ := gpu.ParseName(from)
		if kind, ok := gpu.LeafKind(name.Leaf); ok {
			count[kind] += got.DevRequests[want]
			gpus[kind]++
			continue
		}
		n := got.DevRequests[gpuLeaf(want, from, got)]
		if got.DevRequests[want] != n*asked.Requests[gpu.Memory] {
			t.Fatalf("%d bytes for %d replicas: %v", got.DevRequests[want], n, asked)
		}
	}
	for _, kind := range kinds {
		want := asked.Requests[gpu.KindResource(kind)]
		onGPUs := int(want)
		if asked.Requests[gpu.ReplicasSameGPU] == 1 && kind == "gpu.shared" {
			onGPUs = int(min(want, 1))
		}
		if count[kind] != want || gpus[kind] != onGPUs {
			t.Fatalf("%d of %s on %d GPUs: asked for %v, got %v", count[kind], kind, gpus[kind], asked, got)
		}
	}
}

// gpuLeaf returns the request of which want is the memory.
func gpuLeaf(want, from types.ResourceName, c types.ContainerInfo) types.ResourceName {
	memory, _ := gpu.ParseName(want)
	for r := range c.AllocateFrom {
		name, _ := gpu.ParseName(r)
		if name.Leaf != gpu.Bytes && name.GPU == memory.GPU && name.Slice == memory.Slice {
			return r
		}
	}
	return ""
}

var kinds = []string{"gpu", "gpu.shared", "mig-1g.10gb", "mig-3g.40gb"}

// drawKinds draws up to 6 GPUs, each of one kind or in slices.
func drawKinds(t *rapid.T) []gpu.GPU {
	var all []gpu.GPU
	for i := range rapid.IntRange(1, 6).Draw(t, "gpus") {
		g := gpu.GPU{UUID: fmt.Sprint("g", i), Node: fmt.Sprint(i / 4), Clique: fmt.Sprint(i / 2), Memory: 80}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			all = append(all, g)
		case 1:
			g.Kind, g.Count = "gpu.shared", rapid.Int64Range(2, 4).Draw(t, "replicas")
			all = append(all, g)
		default:
			for s := range rapid.IntRange(0, 4).Draw(t, "slices") {
				g.Slice, g.Memory = fmt.Sprint(g.UUID, ".", s), 10
				g.Kind = rapid.SampledFrom(kinds[2:]).Draw(t, "profile")
				all = append(all, g)
			}
		}
	}
	return all
}

func drawKindsPod(t *rapid.T) *types.PodInfo {
	pod := types.NewPodInfo()
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		pod.RunningContainers[fmt.Sprint("c", i)] = drawAsk(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "init") == 0 {
		pod.InitContainers["init"] = drawAsk(t)
	}
	return pod
}

func drawAsk(t *rapid.T) types.ContainerInfo {
	c := *types.NewContainerInfo()
	some := kinds[:2]
	if rapid.Bool().Draw(t, "wants slices") {
		some = kinds[2:]
	}
	for _, kind := range some {
		if n := rapid.Int64Range(0, 3).Draw(t, kind); n > 0 {
			c.Requests[gpu.KindResource(kind)] = n
		}
	}
	for _, setting := range []types.ResourceName{gpu.ReplicasPack, gpu.ReplicasSameGPU, gpu.Topology} {
		if rapid.IntRange(0, 2).Draw(t, string(setting)) == 0 {
			c.Requests[setting] = 1
		}
	}
	if len(c.Requests) > 0 && rapid.Bool().Draw(t, "memory") && c.Requests[gpu.KindResource(some[0])] > 0 {
		c.Requests[gpu.Memory] = rapid.Int64Range(1, 50).Draw(t, "bytes")
	}
	return c
}

// enoughFor reports whether the node has enough for a pod of one container. Of
// others it does not know.
func enoughFor(node *types.NodeInfo, pod *types.PodInfo) bool {
	if len(pod.RunningContainers)+len(pod.InitContainers) > 1 {
		return false
	}
	c := pod.RunningContainers["c0"]
	for _, kind := range kinds {
		n := c.Requests[gpu.KindResource(kind)]
		gpus, each := n, int64(1)
		if c.Requests[gpu.ReplicasSameGPU] == 1 && kind == "gpu.shared" {
			gpus, each = min(n, 1), cmp.Or(n, 1)
		}
		for _, g := range gpu.Free(node.Allocatable, node.Used, kind) {
			if g.Count >= each && g.Memory >= each*c.Requests[gpu.Memory] {
				gpus--
			}
		}
		if gpus > 0 {
			return false
		}
	}
	return true
}
