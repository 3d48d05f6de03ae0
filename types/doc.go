// Package types is the vocabulary that Kubeslot's binaries and their plugins
// share: KubeDevice's resource lists and pod, container and node descriptions.
//
// Field names, JSON tags and constructors are KubeDevice's, so that annotations
// and plugin sources written for it keep their meaning. The sub-packages hold
// the plugin interfaces (device, devicescheduler), the akri.sh/v0 resources
// (akri/v0), SlotClaims and DeviceSlices (kubeslot/v1alpha1), slot names (slot)
// and the pod annotation (assignment).
//
// This package and those below it import nothing else of Kubeslot.
package types
