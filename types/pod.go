package types

import (
	"iter"
	"maps"
)

// ContainerInfo is what a container asks of devices and what it was given.
//
// Requests and Scorer are the pod author's input. DevRequests and AllocateFrom
// belong to the scheduler: whatever an author wrote there is overwritten at Bind.
type ContainerInfo struct {
	// KubeRequests are the container's spec.resources.requests; never serialized.
	KubeRequests ResourceList `json:"-"`
	// Requests are asked for in the annotation, or mirrored there by the
	// scheduler from the container's akri.sh resources.
	Requests ResourceList `json:"requests,omitempty"`
	// DevRequests are Requests after translation to the node's hierarchy.
	DevRequests ResourceList `json:"devrequests,omitempty"`
	// AllocateFrom maps each request to the resource or slot that satisfies it.
	AllocateFrom ResourceLocation `json:"allocatefrom,omitempty"`
	// Scorer overrides the node's scorers for this container.
	Scorer ResourceScorer `json:"scorer,omitempty"`
}

// NewContainerInfo returns a ContainerInfo with every map made.
func NewContainerInfo() *ContainerInfo {
	return FillContainerInfo(&ContainerInfo{})
}

// FillContainerInfo returns a copy of fill in which no map is nil. The maps
// that fill has are shared with the copy, as KubeDevice does.
func FillContainerInfo(fill *ContainerInfo) *ContainerInfo {
	return &ContainerInfo{
		KubeRequests: orEmpty(fill.KubeRequests),
		Requests:     orEmpty(fill.Requests),
		DevRequests:  orEmpty(fill.DevRequests),
		AllocateFrom: orEmpty(fill.AllocateFrom),
		Scorer:       orEmpty(fill.Scorer),
	}
}

// PodInfo is the content of a pod's KubeDevice/DeviceInfo annotation.
type PodInfo struct {
	Name string `json:"podname,omitempty"`
	// Namespace and UID are never serialized: the annotation is the pod's own.
	Namespace string `json:"-"`
	UID       string `json:"-"`
	// NodeName is the node for which DevRequests and AllocateFrom are valid.
	NodeName string `json:"nodename,omitempty"`
	// Requests are those of the pod as a whole.
	Requests          ResourceList             `json:"requests,omitempty"`
	InitContainers    map[string]ContainerInfo `json:"initcontainer,omitempty"`
	RunningContainers map[string]ContainerInfo `json:"runningcontainer,omitempty"`
}

// NewPodInfo returns a PodInfo with every map made.
func NewPodInfo() *PodInfo {
	return &PodInfo{
		Requests:          make(ResourceList),
		InitContainers:    make(map[string]ContainerInfo),
		RunningContainers: make(map[string]ContainerInfo),
	}
}

// Clone returns a deep copy in which no map is nil, and none of a container.
func (p *PodInfo) Clone() *PodInfo {
	return &PodInfo{
		Name:              p.Name,
		Namespace:         p.Namespace,
		UID:               p.UID,
		NodeName:          p.NodeName,
		Requests:          orEmpty(maps.Clone(p.Requests)),
		InitContainers:    cloneContainers(p.InitContainers),
		RunningContainers: cloneContainers(p.RunningContainers),
	}
}

func cloneContainers(from map[string]ContainerInfo) map[string]ContainerInfo {
	to := make(map[string]ContainerInfo, len(from))
	for name, c := range from {
		to[name] = ContainerInfo{
			KubeRequests: orEmpty(maps.Clone(c.KubeRequests)),
			Requests:     orEmpty(maps.Clone(c.Requests)),
			DevRequests:  orEmpty(maps.Clone(c.DevRequests)),
			AllocateFrom: orEmpty(maps.Clone(c.AllocateFrom)),
			Scorer:       orEmpty(maps.Clone(c.Scorer)),
		}
	}
	return to
}

// Containers yields all containers by name: init containers first, each kind in no order.
func (p *PodInfo) Containers() iter.Seq2[string, ContainerInfo] {
	return func(yield func(string, ContainerInfo) bool) {
		for _, containers := range []map[string]ContainerInfo{p.InitContainers, p.RunningContainers} {
			for name, c := range containers {
				if !yield(name, c) {
					return
				}
			}
		}
	}
}

// GetContainerInPod returns a copy of the named container, init containers
// first, or nil when the pod has none of that name.
func (p *PodInfo) GetContainerInPod(name string) *ContainerInfo {
	if c, ok := p.InitContainers[name]; ok {
		return &c
	}
	if c, ok := p.RunningContainers[name]; ok {
		return &c
	}
	return nil
}

func orEmpty[M ~map[K]V, K comparable, V any](m M) M {
	if m == nil {
		return make(M)
	}
	return m
}
