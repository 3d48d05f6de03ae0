// Package dra publishes the devices of Configurations with spec.allocator DRA: as ResourceSlices, and as a
// DeviceClass for each Configuration.
package dra

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// devicesPerSlice is as many as the API allows where a device has a taint, also where none has: a taint moves
// no device to another slice.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// poolOf is the pool of devices that are all of it, by Instance.
func poolOf(devices map[string]*published) resourceslice.Pool {
	all := make([]resourceapi.Device, 0, len(devices))
	var pool resourceslice.Pool
	var each *bool // device names its node
	for _, instance := range slices.Sorted(maps.Keys(devices)) {
		p := devices[instance]
		if all = append(all, p.Device); p.Device.NodeName != nil {
			each = new(true)
		} else {
			pool.NodeSelector, pool.AllNodes = p.Nodes, p.Nodes == nil
		}
	}
	for chunk := range slices.Chunk(all, devicesPerSlice) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk, PerDeviceNodeSelection: each})
	}
	return pool
}
