// Package v1alpha1 is the kubeslot.io/v1alpha1 API: DeviceSlice (the devices that
// one node sees) and SlotClaim (who uses one slot). Each object has one writer,
// so that what a node does costs what that node's own share costs.
//
// +k8s:deepcopy-gen=package
// +groupName=kubeslot.io
package v1alpha1
