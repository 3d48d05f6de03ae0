package server

import (
	"maps"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// renamed returns the map with keys of another type of strings. It is never nil.
func renamed[To, From ~string, V any](m map[From]V) map[To]V {
	to := make(map[To]V, len(m))
	for k, v := range m {
		to[To(k)] = v
	}
	return to
}

type name = types.ResourceName

func nodeInfo(n *pb.NodeInfo) *types.NodeInfo {
	return &types.NodeInfo{
		Name:        n.GetName(),
		Capacity:    renamed[name](n.GetCapacity()),
		Allocatable: renamed[name](n.GetAllocatable()),
		Used:        renamed[name](n.GetUsed()),
		Scorer:      renamed[name](n.GetScorer()),
		KubeCap:     renamed[name](n.GetKubeCapacity()),
		KubeAlloc:   renamed[name](n.GetKubeAllocatable()),
	}
}

func nodeState(n *types.NodeInfo) *pb.NodeState {
	return &pb.NodeState{
		Capacity:        renamed[string](n.Capacity),
		Allocatable:     renamed[string](n.Allocatable),
		Scorer:          renamed[string](n.Scorer),
		KubeCapacity:    renamed[string](n.KubeCap),
		KubeAllocatable: renamed[string](n.KubeAlloc),
	}
}

func podInfo(p *pb.PodInfo) *types.PodInfo {
	return &types.PodInfo{
		Name:              p.GetName(),
		NodeName:          p.GetNodeName(),
		Requests:          renamed[name](p.GetRequests()),
		InitContainers:    containers(p.GetInitContainers()),
		RunningContainers: containers(p.GetRunningContainers()),
	}
}

func containers(from map[string]*pb.ContainerInfo) map[string]types.ContainerInfo {
	to := make(map[string]types.ContainerInfo, len(from))
	for container, c := range from {
		location := types.ResourceLocation{}
		for request, resource := range c.GetAllocateFrom() {
			location[name(request)] = name(resource)
		}
		to[container] = types.ContainerInfo{
			KubeRequests: renamed[name](c.GetKubeRequests()),
			Requests:     renamed[name](c.GetRequests()),
			DevRequests:  renamed[name](c.GetDevRequests()),
			AllocateFrom: location,
			Scorer:       renamed[name](c.GetScorer()),
		}
	}
	return to
}

// changes is what of the pod the plugin has changed, in containers that it had before.
func changes(before, after *types.PodInfo) *pb.PodChanges {
	return &pb.PodChanges{
		InitContainers:    changed(before.InitContainers, after.InitContainers),
		RunningContainers: changed(before.RunningContainers, after.RunningContainers),
	}
}

func changed(before, after map[string]types.ContainerInfo) map[string]*pb.ContainerChanges {
	to := map[string]*pb.ContainerChanges{}
	for container, was := range before {
		c, ok := after[container]
		if !ok || maps.Equal(c.DevRequests, was.DevRequests) && maps.Equal(c.AllocateFrom, was.AllocateFrom) &&
			maps.Equal(c.Scorer, was.Scorer) {
			continue
		}
		location := map[string]string{}
		for request, resource := range c.AllocateFrom {
			location[string(request)] = string(resource)
		}
		to[container] = &pb.ContainerChanges{DevRequests: renamed[string](c.DevRequests), AllocateFrom: location,
			Scorer: renamed[string](c.Scorer)}
	}
	return to
}

func reason(r devicescheduler.PredicateFailureReason) *pb.Reason {
	resource, requested, used, capacity := r.GetInfo()
	never, ok := r.(interface{ Never() bool })
	return &pb.Reason{Text: r.GetReason(), Resource: string(resource), Requested: requested, Used: used,
		Capacity: capacity, Never: ok && never.Never()}
}
