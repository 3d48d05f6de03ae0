// Package v0 is the akri.sh/v0 API: Configuration (what to discover) and
// Instance (one discovered device). The schema accepts Akri v0.13's objects
// unchanged and adds uniqueDevices and uniqueScope.
//
// +k8s:deepcopy-gen=package
// +groupName=akri.sh
package v0
