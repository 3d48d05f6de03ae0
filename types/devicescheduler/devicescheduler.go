// Package devicescheduler is the interface of scheduler-side device plugins, as
// KubeDevice defines it. kube-scheduler loads implementations from .so files.
package devicescheduler

import "github.com/kubeslot/kubeslot/types"

// PredicateFailureReason says why a pod does not fit a node.
type PredicateFailureReason interface {
	GetReason() string
	// GetInfo returns the resource, and how much was requested, is used and
	// exists in all.
	GetInfo() (types.ResourceName, int64, int64, int64)
}

// DeviceScheduler decides for one kind of device which nodes fit a pod and
// which devices it gets.
type DeviceScheduler interface {
	// AddNode tells of a node, new or changed.
	AddNode(nodeName string, nodeInfo *types.NodeInfo)
	// RemoveNode tells that a node is gone.
	RemoveNode(nodeName string)
	// PodFitsDevice reports whether the pod fits the node, why not, and the
	// node's score. AllocateFrom needs filling only when fillAllocateFrom is set.
	PodFitsDevice(nodeInfo *types.NodeInfo, podInfo *types.PodInfo, fillAllocateFrom bool) (bool, []PredicateFailureReason, float64)
	// PodAllocate fills the pod's AllocateFrom for the node that was chosen.
	PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error
	// TakePodResources adds what the pod holds to the node's Used.
	TakePodResources(*types.NodeInfo, *types.PodInfo) error
	// ReturnPodResources undoes TakePodResources.
	ReturnPodResources(*types.NodeInfo, *types.PodInfo) error
	// GetName returns the plugin's name, unique in the scheduler.
	GetName() string
	// UsingGroupScheduler reports whether the built-in group scheduler decides
	// in place of PodFitsDevice and PodAllocate.
	UsingGroupScheduler() bool
}
