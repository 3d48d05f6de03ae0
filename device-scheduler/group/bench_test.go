package group

import (
	"fmt"
	"testing"

	"github.com/kubeslot/kubeslot/types"
)

// benchNode has devices in three levels: 4 to an inner group, 8 to an outer one.
func benchNode(devices int) *types.NodeInfo {
	node := types.NewNodeInfoWithName("node")
	for d := range devices {
		name := fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/gpu/GPU-%08d", d/8, d/4, d)
		types.AddGroupResource(node.Allocatable, name+"/cards", 1)
		types.AddGroupResource(node.Allocatable, name+"/memory", 80<<30)
	}
	return node
}

// benchPod asks for devices, of which each may come from anywhere: the costliest
// form, in which every one has its own groups on both levels.
func benchPod(devices int) *types.PodInfo {
	c := types.NewContainerInfo()
	for d := range devices {
		types.AddGroupResource(c.DevRequests, fmt.Sprintf("gpugrp1/%d/gpugrp0/%d/gpu/%d/cards", d, d, d), 1)
	}
	pod := types.NewPodInfo()
	pod.RunningContainers["main"] = *c
	return pod
}

func benchmarkFit(b *testing.B, devices, requested int, fits bool) {
	node := benchNode(devices)
	var s Scheduler
	s.AddNode(node.Name, node)
	pod := benchPod(requested)
	b.ReportAllocs()
	for b.Loop() {
		if ok, reasons, _ := s.PodFitsDevice(node, pod, false); ok != fits {
			b.Fatal(ok, reasons)
		}
	}
}

// BenchmarkFitOne places one device: the cost grows with the node alone.
func BenchmarkFitOne(b *testing.B) {
	for _, devices := range []int{8, 16, 32, 64} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) { benchmarkFit(b, devices, 1, true) })
	}
}

// BenchmarkFitEight places eight, as for training.
func BenchmarkFitEight(b *testing.B) {
	for _, devices := range []int{8, 16, 32, 64} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) { benchmarkFit(b, devices, 8, true) })
	}
}

// BenchmarkFitAll places as many as there are: requests times devices.
func BenchmarkFitAll(b *testing.B) {
	for _, devices := range []int{8, 16, 32, 64} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) { benchmarkFit(b, devices, devices, true) })
	}
}

// BenchmarkFitNone asks for more than there is, so that it fails last.
func BenchmarkFitNone(b *testing.B) {
	for _, devices := range []int{8, 16, 32, 64} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) { benchmarkFit(b, devices, devices+1, false) })
	}
}

// BenchmarkFitFlood asks for as many leaves as an annotation can hold.
func BenchmarkFitFlood(b *testing.B) { benchmarkFit(b, 64, 5000, false) }

// BenchmarkAddNode parses a node.
func BenchmarkAddNode(b *testing.B) {
	for _, devices := range []int{8, 16, 32, 64} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) {
			node := benchNode(devices)
			var s Scheduler
			b.ReportAllocs()
			for b.Loop() {
				s.AddNode(node.Name, node)
			}
		})
	}
}
