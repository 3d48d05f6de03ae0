package utils

import (
	"fmt"
	"reflect"

	"github.com/kubeslot/kubeslot/types"
)

// CompareContainer reports whether two containers are equal, and prints how
// they differ.
func CompareContainer(cont0 *types.ContainerInfo, cont1 *types.ContainerInfo) bool {
	return all(
		same("KubeRequests", cont0.KubeRequests, cont1.KubeRequests),
		same("Requests", cont0.Requests, cont1.Requests),
		same("DevRequests", cont0.DevRequests, cont1.DevRequests),
		same("AllocateFrom", cont0.AllocateFrom, cont1.AllocateFrom),
		same("Scorer", cont0.Scorer, cont1.Scorer),
	)
}

// CompareContainers is CompareContainer for all of two pods' containers.
func CompareContainers(conts0 map[string]types.ContainerInfo, conts1 map[string]types.ContainerInfo) bool {
	equal := same("container names", SortedStringKeys(conts0), SortedStringKeys(conts1))
	for _, name := range SortedStringKeys(conts0) {
		cont0, cont1 := conts0[name], conts1[name]
		if _, ok := conts1[name]; ok && !CompareContainer(&cont0, &cont1) {
			fmt.Printf("in container %s\n", name)
			equal = false
		}
	}
	return equal
}

// ComparePod reports whether two pods are equal, and prints how they differ.
func ComparePod(pod0 *types.PodInfo, pod1 *types.PodInfo) bool {
	return all(
		same("Name", pod0.Name, pod1.Name),
		same("NodeName", pod0.NodeName, pod1.NodeName),
		same("Requests", pod0.Requests, pod1.Requests),
		CompareContainers(pod0.InitContainers, pod1.InitContainers),
		CompareContainers(pod0.RunningContainers, pod1.RunningContainers),
	)
}

// CompareNode reports whether two nodes are equal, and prints how they differ.
func CompareNode(node0 *types.NodeInfo, node1 *types.NodeInfo) bool {
	return all(
		same("Name", node0.Name, node1.Name),
		same("Capacity", node0.Capacity, node1.Capacity),
		same("Allocatable", node0.Allocatable, node1.Allocatable),
		same("Used", node0.Used, node1.Used),
		same("Scorer", node0.Scorer, node1.Scorer),
		same("KubeCap", node0.KubeCap, node1.KubeCap),
		same("KubeAlloc", node0.KubeAlloc, node1.KubeAlloc),
	)
}

// same compares as KubeDevice does: a nil map and an empty one differ.
func same(what string, x, y interface{}) bool {
	if reflect.DeepEqual(x, y) {
		return true
	}
	fmt.Printf("%s differ:\n%v\n%v\n", what, x, y)
	return false
}

func all(equal ...bool) bool {
	for _, e := range equal {
		if !e {
			return false
		}
	}
	return true
}
