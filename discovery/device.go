package discovery

import (
	"maps"
	"slices"
	"strings"
)

// Device is one device as a discovery handler reports it: Akri's discovery
// proto v0 (Device, Mount, DeviceSpec) as Go values. What it carries besides
// its ID goes into each container that is given one of the device's slots.
//
// Devices are values: a handler must not change one, nor its map and slices,
// after reporting it.
type Device struct {
	// ID tells the device apart from all others its handler finds. It is the
	// same on every node for a device that several nodes reach, and the same
	// again when the device returns: slots are named after it.
	ID string `json:"id"`

	// Properties become environment variables of the containers.
	Properties map[string]string `json:"properties,omitzero"`

	// Variables are the names of the Properties that may be variables of those very names;
	// others are variables with the device's hash alone. No handler sets it: kubecri does,
	// as the Configuration's spec.propertyPrefixes says.
	Variables map[string]bool `json:"variables,omitzero"`

	// BrokerVariables are further such names in containers of the Configuration's own brokers.
	BrokerVariables map[string]bool `json:"brokerVariables,omitzero"`

	// Mounts are bind-mounted into the containers.
	Mounts []Mount `json:"mounts,omitzero"`

	// DeviceSpecs are device nodes made available to the containers.
	DeviceSpecs []DeviceSpec `json:"deviceSpecs,omitzero"`
}

// ByID returns devices in the order of the IDs by which a map has them.
func ByID(devices map[string]Device) (all []Device) {
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		all = append(all, devices[id])
	}
	return all
}

// Mount is a path of the node to mount into a container.
type Mount struct {
	// ContainerPath is the absolute path in the container.
	ContainerPath string `json:"containerPath"`

	// HostPath is the absolute path on the node.
	HostPath string `json:"hostPath"`

	ReadOnly bool `json:"readOnly"`
}

// DeviceSpec is a device node of the node to make available in a container.
type DeviceSpec struct {
	// ContainerPath is the absolute path in the container.
	ContainerPath string `json:"containerPath"`

	// HostPath is the absolute path on the node.
	HostPath string `json:"hostPath"`

	// Permissions is a subset of "rwm": read, write, mknod.
	Permissions string `json:"permissions"`
}

// EnvName returns the text as a part of an environment variable's name: in upper case, with
// _ for all but letters and digits.
func EnvName(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, text)
}
