package schedule

import (
	"fmt"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
)

// crowd is a pod that asks for as many GPUs of as many kinds as it may, which the group scheduler is to place.
func crowd() *types.PodInfo {
	pod := types.NewPodInfo()
	pod.Requests[gpu.Topology] = 0
	for i := range 6 {
		c := *types.NewContainerInfo()
		for kind := range maxKinds {
			c.Requests[gpu.KindResource(fmt.Sprint("k", kind))] = gpu.Max
		}
		c.DevRequests = c.Requests
		pod.RunningContainers[fmt.Sprint("c", i)] = c
	}
	return pod
}

func eightGPUs() *types.NodeInfo {
	node := types.NewNodeInfo()
	for i := range 8 {
		g := gpu.GPU{UUID: fmt.Sprint(i), Node: fmt.Sprint(i / 4), Clique: fmt.Sprint(i / 2), Memory: 1, Kind: "k0"}
		gpu.Write(node.Allocatable, []gpu.GPU{g})
	}
	return node
}

// What a pod asks for is not written out where a node does not have it.
func TestNamesAreBounded(t *testing.T) {
	pod := crowd()
	if _, reason := place(eightGPUs(), pod); reason != nil {
		t.Fatal(reason.GetReason())
	}
	for name, c := range pod.RunningContainers {
		named := len(labels(c.DevRequests))
		if want := 9 + maxKinds - 1; named != want {
			t.Errorf("container %s: %d names, want %d", name, named, want)
		}
	}
}

// Nobody is evicted for a request that no node can meet.
func TestBadRequestsAreNeverMet(t *testing.T) {
	for _, requests := range []string{
		"nvidia.com/gpu -1", "nvidia.com/k0 129", "nvidia.com/k0 1\nnvidia.com/mig-1g.5gb 1", "gpu/memory 1",
	} {
		pod := types.NewPodInfo()
		pod.RunningContainers["main"] = asks(requests)
		_, reason := place(eightGPUs(), pod)
		if says, ok := reason.(interface{ Never() bool }); !ok || !says.Never() {
			t.Errorf("%s: %v", requests, reason)
		}
	}
}

func BenchmarkCrowd(b *testing.B) {
	node := eightGPUs()
	for b.Loop() {
		if _, reason := place(node, crowd()); reason != nil {
			b.Fatal(reason.GetReason())
		}
	}
}
