// Package device is the interface of node-side device plugins, as KubeDevice
// defines it. kubecri loads implementations from .so files.
package device

import "github.com/kubeslot/kubeslot/types"

// Mount is a host path that a container gets to see.
type Mount struct {
	ContainerPath string
	HostPath      string
	Readonly      bool
}

// Device is one kind of device on a node. Its methods are never called
// concurrently.
type Device interface {
	// New prepares the device; it does not touch hardware and should not fail.
	New() error
	// Start makes it operational. After an error it is left out of service.
	Start() error
	// UpdateNodeInfo writes what the node has: Capacity, Allocatable and Scorer
	// for the annotation, KubeCap and KubeAlloc for node.status.
	UpdateNodeInfo(*types.NodeInfo) error
	// Allocate returns the mounts, the device node paths or CDI names, and the
	// environment that the container needs, given what the scheduler assigned to
	// its pod.
	Allocate(*types.PodInfo, *types.ContainerInfo) ([]Mount, []string, map[string]string, error)
	// GetName returns the plugin's name, unique on the node.
	GetName() string
}

// VariableOwner is what a Device implements whose devices a container could get past the
// scheduler, because the runtime believes a variable of the container's or its image's.
type VariableOwner interface {
	// OwnVariables returns these variables, each with the value that gives no device. It is
	// asked once, before New. kubecri sets them in each container that is not given them by
	// Allocate, unless it is privileged or of a namespace that may.
	OwnVariables() map[string]string
}

// NodeLabeler is what a Device implements that reads or writes labels of its Node.
type NodeLabeler interface {
	// NodeLabels takes the Node's labels and returns those that the Device wants on it. It is
	// called before each UpdateNodeInfo. kubecri writes at most 32 labels of all Devices, of the
	// prefixes gpu.kubeslot.io/ and nvidia.com/, and removes those that are not returned any more.
	// After an error those that were returned last stay.
	NodeLabels(node map[string]string) (own map[string]string, err error)
}

// LossReporter is what a Device implements that knows what became of devices that containers
// hold.
type LossReporter interface {
	// Lost returns those of held that are lost, each with the reason: a sentence for an Event of
	// the pods that hold it. held are the resources that running containers of the node were
	// assigned, sorted. It is called after each UpdateNodeInfo.
	Lost(held []types.ResourceName) map[types.ResourceName]string
}
