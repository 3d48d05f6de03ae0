// Package types is KubeDevice-API's pkg/types: aliases of Kubeslot's types.
package types

import "github.com/kubeslot/kubeslot/types"

// DeviceGroupPrefix is types.DeviceGroupPrefix.
const DeviceGroupPrefix = types.DeviceGroupPrefix

type (
	// ResourceName is types.ResourceName.
	ResourceName = types.ResourceName
	// ResourceLocation is types.ResourceLocation.
	ResourceLocation = types.ResourceLocation
	// ResourceList is types.ResourceList.
	ResourceList = types.ResourceList
	// ResourceScorer is types.ResourceScorer.
	ResourceScorer = types.ResourceScorer
	// ContainerInfo is types.ContainerInfo.
	ContainerInfo = types.ContainerInfo
	// PodInfo is types.PodInfo.
	PodInfo = types.PodInfo
	// NodeInfo is types.NodeInfo.
	NodeInfo = types.NodeInfo
)

// NewContainerInfo is types.NewContainerInfo.
func NewContainerInfo() *ContainerInfo { return types.NewContainerInfo() }

// FillContainerInfo is types.FillContainerInfo.
func FillContainerInfo(fill *ContainerInfo) *ContainerInfo { return types.FillContainerInfo(fill) }

// NewPodInfo is types.NewPodInfo.
func NewPodInfo() *PodInfo { return types.NewPodInfo() }

// NewNodeInfo is types.NewNodeInfo.
func NewNodeInfo() *NodeInfo { return types.NewNodeInfo() }

// NewNodeInfoWithName is types.NewNodeInfoWithName.
func NewNodeInfoWithName(name string) *NodeInfo { return types.NewNodeInfoWithName(name) }

// AddGroupResource is types.AddGroupResource.
func AddGroupResource(list ResourceList, key string, val int64) {
	types.AddGroupResource(list, key, val)
}
