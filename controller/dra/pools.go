// Package dra publishes the devices of Configurations with spec.allocator DRA: as ResourceSlices, and as a
// DeviceClass for each Configuration.
package dra

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// devicesPerSlice is as many as the API allows where a device has a taint, also where none has: a taint moves
// no device to another slice.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// poolOf is the pool of devices that are all of it.
func poolOf(all []*published) resourceslice.Pool {
	slices.SortFunc(all, func(a, b *published) int { return cmp.Compare(a.Device.Name, b.Device.Name) })
	var pool resourceslice.Pool
	var each *bool // device names its node
	if all[0].Device.NodeName != nil {
		each = new(true)
	} else {
		pool.NodeSelector, pool.AllNodes = all[0].Nodes, all[0].Nodes == nil
	}
	for chunk := range slices.Chunk(all, devicesPerSlice) {
		devices := make([]resourceapi.Device, len(chunk))
		for i, p := range chunk {
			devices[i] = p.Device
		}
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: devices, PerDeviceNodeSelection: each})
	}
	return pool
}

// sizeOf is how long a pool's slices are, in bytes, but for what each object has. It writes to the pool: a
// Quantity keeps the text that its Size makes.
func sizeOf(pool *resourceslice.Pool) (bytes int) {
	for _, s := range pool.Slices {
		if pool.NodeSelector != nil {
			bytes += pool.NodeSelector.Size()
		}
		for i := range s.Devices {
			bytes += s.Devices[i].Size()
		}
	}
	return bytes
}
