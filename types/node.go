package types

import "maps"

// NodeInfo is what a node's device plugins advertise; all but KubeCap and
// KubeAlloc is the content of the node's KubeDevice/DeviceInfo annotation.
type NodeInfo struct {
	Name        string       `json:"name,omitempty"`
	Capacity    ResourceList `json:"capacity,omitempty"`
	Allocatable ResourceList `json:"allocatable,omitempty"` // capacity less what is reserved
	Used        ResourceList `json:"used,omitempty"`        // held by pods, ≤ allocatable
	// Scorer selects the scoring functions; a container's Scorer overrides it.
	Scorer ResourceScorer `json:"scorer,omitempty"`
	// KubeCap and KubeAlloc are node.status.capacity and .allocatable, where
	// the stock scheduler sees them; never in the annotation.
	KubeCap   ResourceList `json:"-"`
	KubeAlloc ResourceList `json:"-"`
}

// NewNodeInfo returns a NodeInfo with every map made.
func NewNodeInfo() *NodeInfo {
	return (&NodeInfo{}).Clone()
}

// NewNodeInfoWithName is NewNodeInfo with Name set.
func NewNodeInfoWithName(name string) *NodeInfo {
	return (&NodeInfo{Name: name}).Clone()
}

// Clone returns a deep copy in which no map is nil.
func (ni *NodeInfo) Clone() *NodeInfo {
	return &NodeInfo{
		Name:        ni.Name,
		Capacity:    orEmpty(maps.Clone(ni.Capacity)),
		Allocatable: orEmpty(maps.Clone(ni.Allocatable)),
		Used:        orEmpty(maps.Clone(ni.Used)),
		Scorer:      orEmpty(maps.Clone(ni.Scorer)),
		KubeCap:     orEmpty(maps.Clone(ni.KubeCap)),
		KubeAlloc:   orEmpty(maps.Clone(ni.KubeAlloc)),
	}
}

// Has reports whether any list of what the node has names the resource. A nil NodeInfo has none.
func (ni *NodeInfo) Has(name ResourceName) bool {
	if ni == nil {
		return false
	}
	for _, list := range []ResourceList{ni.Allocatable, ni.Capacity, ni.KubeAlloc, ni.KubeCap} {
		if _, has := list[name]; has {
			return true
		}
	}
	return false
}
