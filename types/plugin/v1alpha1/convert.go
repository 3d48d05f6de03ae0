package v1alpha1

import "github.com/kubeslot/kubeslot/types"

// NodeInfoOf returns the node as a message. Nothing is shared with it.
func NodeInfoOf(n *types.NodeInfo) *NodeInfo {
	return &NodeInfo{
		Name:            n.Name,
		Capacity:        mapOf[string](n.Capacity),
		Allocatable:     mapOf[string](n.Allocatable),
		Used:            mapOf[string](n.Used),
		Scorer:          mapOf[string](n.Scorer),
		KubeCapacity:    mapOf[string](n.KubeCap),
		KubeAllocatable: mapOf[string](n.KubeAlloc),
	}
}

// Info returns the node of the message; no map of it is nil, and nothing is shared.
func (n *NodeInfo) Info() *types.NodeInfo {
	return &types.NodeInfo{
		Name:        n.GetName(),
		Capacity:    mapOf[types.ResourceName](n.GetCapacity()),
		Allocatable: mapOf[types.ResourceName](n.GetAllocatable()),
		Used:        mapOf[types.ResourceName](n.GetUsed()),
		Scorer:      mapOf[types.ResourceName](n.GetScorer()),
		KubeCap:     mapOf[types.ResourceName](n.GetKubeCapacity()),
		KubeAlloc:   mapOf[types.ResourceName](n.GetKubeAllocatable()),
	}
}

// NodeStateOf returns what the node's half of a plugin says of its node as a message.
func NodeStateOf(n *types.NodeInfo) *NodeState {
	i := NodeInfoOf(n)
	return &NodeState{Capacity: i.Capacity, Allocatable: i.Allocatable, Scorer: i.Scorer,
		KubeCapacity: i.KubeCapacity, KubeAllocatable: i.KubeAllocatable}
}

// Info returns what the message says of the node, which has no name and nothing used.
func (n *NodeState) Info() *types.NodeInfo {
	i := &NodeInfo{Capacity: n.GetCapacity(), Allocatable: n.GetAllocatable(), Scorer: n.GetScorer(),
		KubeCapacity: n.GetKubeCapacity(), KubeAllocatable: n.GetKubeAllocatable()}
	return i.Info()
}

// PodInfoOf returns the pod as a message. Nothing is shared with it.
func PodInfoOf(p *types.PodInfo) *PodInfo {
	return &PodInfo{
		Name:              p.Name,
		Namespace:         p.Namespace,
		Uid:               p.UID,
		NodeName:          p.NodeName,
		Requests:          mapOf[string](p.Requests),
		InitContainers:    containersOf(p.InitContainers),
		RunningContainers: containersOf(p.RunningContainers),
	}
}

func containersOf(from map[string]types.ContainerInfo) map[string]*ContainerInfo {
	to := make(map[string]*ContainerInfo, len(from))
	for name, c := range from {
		to[name] = &ContainerInfo{
			KubeRequests: mapOf[string](c.KubeRequests),
			Requests:     mapOf[string](c.Requests),
			DevRequests:  mapOf[string](c.DevRequests),
			AllocateFrom: locationOf[string](c.AllocateFrom),
			Scorer:       mapOf[string](c.Scorer),
		}
	}
	return to
}

// Info returns the pod of the message; no map of it is nil, and nothing is shared.
func (p *PodInfo) Info() *types.PodInfo {
	return &types.PodInfo{
		Name:              p.GetName(),
		Namespace:         p.GetNamespace(),
		UID:               p.GetUid(),
		NodeName:          p.GetNodeName(),
		Requests:          mapOf[types.ResourceName](p.GetRequests()),
		InitContainers:    infosOf(p.GetInitContainers()),
		RunningContainers: infosOf(p.GetRunningContainers()),
	}
}

func infosOf(from map[string]*ContainerInfo) map[string]types.ContainerInfo {
	to := make(map[string]types.ContainerInfo, len(from))
	for name, c := range from {
		to[name] = types.ContainerInfo{
			KubeRequests: mapOf[types.ResourceName](c.GetKubeRequests()),
			Requests:     mapOf[types.ResourceName](c.GetRequests()),
			DevRequests:  mapOf[types.ResourceName](c.GetDevRequests()),
			AllocateFrom: locationOf[types.ResourceName](c.GetAllocateFrom()),
			Scorer:       mapOf[types.ResourceName](c.GetScorer()),
		}
	}
	return to
}

// PodChangesOf returns what a plugin has changed in the pod, of the containers that it had before.
func PodChangesOf(before, after *types.PodInfo) *PodChanges {
	return &PodChanges{InitContainers: changesOf(before.InitContainers, after.InitContainers),
		RunningContainers: changesOf(before.RunningContainers, after.RunningContainers)}
}

func changesOf(before, after map[string]types.ContainerInfo) map[string]*ContainerChanges {
	to := make(map[string]*ContainerChanges, len(after))
	for name, c := range after {
		if _, had := before[name]; !had {
			continue
		}
		to[name] = &ContainerChanges{
			DevRequests:  mapOf[string](c.DevRequests),
			AllocateFrom: locationOf[string](c.AllocateFrom),
			Scorer:       mapOf[string](c.Scorer),
		}
	}
	return to
}

func mapOf[To, From ~string, V any](from map[From]V) map[To]V {
	to := make(map[To]V, len(from))
	for name, v := range from {
		to[To(name)] = v
	}
	return to
}

func locationOf[To, From ~string](from map[From]From) map[To]To {
	to := make(map[To]To, len(from))
	for want, name := range from {
		to[To(want)] = To(name)
	}
	return to
}
