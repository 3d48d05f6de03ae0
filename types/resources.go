package types

// ResourceName names a countable thing, such as "akri.sh/akri-onvif" or
// "resource/group/gpugrp1/0/gpugrp0/1/gpu/dev3/cards".
type ResourceName string

// DeviceGroupPrefix is the namespace of hierarchical (group) resources.
const DeviceGroupPrefix = "resource/group"

// ResourceList counts resources by name. Counts are whole units, ≥ 0.
type ResourceList map[ResourceName]int64

// ResourceLocation says where each requested resource is taken from: request
// name to the name of the concrete resource or slot.
type ResourceLocation map[ResourceName]ResourceName

// ResourceScorer selects the scoring function of a resource by its number.
type ResourceScorer map[ResourceName]int32

// AddGroupResource sets list["resource/group/<key>"] to val.
func AddGroupResource(list ResourceList, key string, val int64) {
	list[ResourceName(DeviceGroupPrefix+"/"+key)] = val
}
