// Package inject says what a container gets for the slots that it was granted, and
// from device plugins: environment, mounts, device nodes and the annotations that
// name the slots. It computes; it neither reads nor writes anything.
//
// Each source of edits has an owner: SlotEdits makes those of slots, package
// soplugins those of device plugins. Merge puts them together in the order in
// which they come, remembers which field is whose, and refuses two owners that want
// different things of one field. The result is a value in the words of no protocol.
// Each way to the runtime encodes it: cri.go as bytes of a CRI request,
// deviceplugin.go as the answer of a device plugin of the kubelet, package nri as an
// adjustment.
package inject

import (
	"fmt"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Grant is a slot given to the container and the device behind it.
type Grant struct {
	Slot slot.Name
	// Holder is the pod's UID when the slot is held through a request for any
	// device of its Configuration, and "" when through one for its Instance.
	Holder string
	// Device is the Instance's device. Its Properties are what the container is
	// to see: those of the Configuration are merged in already.
	Device discovery.Device
	// Broker is set for a container of a broker of the device's Configuration.
	Broker bool
	// CDI is the name by which the runtime knows the device and gives its mounts
	// and device nodes itself; "" when the request is to have them.
	CDI string
}

// Container is what matters here of a container as it is requested.
type Container struct {
	// Env are the names of its variables. With ImageEnv they are also those of its image;
	// otherwise it may have others from there.
	Env      []string
	ImageEnv bool
	// Privileged containers have all devices of the node.
	Privileged bool
	// Mounts are the paths in the container at which it has something mounted.
	Mounts []string
	// Devices are its device nodes, and CDI the names of its CDI devices.
	Devices []discovery.DeviceSpec
	CDI     []string
	// NoCDI says that the runtime gives it no CDI devices by name, and says nothing.
	NoCDI bool
	// Users are those of its pod.
	Users UserNamespace
}

// Edits are what one owner gives the container.
type Edits struct {
	// Owner says in messages and logs whose edits they are, such as
	// `device plugin "gpu"`. See SlotOwner and PluginOwner.
	Owner string
	// Env are its variables, in order.
	Env []Variable
	// Mounts and Devices have absolute paths. Permissions are a subset of "rwm", and
	// "" for all.
	Mounts  []discovery.Mount
	Devices []discovery.DeviceSpec
	// CDI are fully qualified names of CDI devices.
	CDI []string
	// ByCDI says that the runtime gives the Mounts and Devices by the names in CDI.
	// They take their paths in the container and are not asked of the runtime again.
	ByCDI bool
	// Annotations are the container's.
	Annotations map[string]string
}

// Empty reports whether the container gets nothing.
func (e *Edits) Empty() bool {
	return len(e.Env)+len(e.Mounts)+len(e.Devices)+len(e.CDI)+len(e.Annotations) == 0
}

// Variable is one of the environment. Its value is any bytes but NUL.
type Variable struct {
	Name, Value string
	// Default yields to a variable of this name that is the container's own, that an
	// earlier owner has, or that any owner sets without Default.
	Default bool
}

// SlotOwner is the owner of what a slot's device gives.
func SlotOwner(name slot.Name) string { return fmt.Sprintf("slot %s", name) }

// PluginOwner is the owner of what a device plugin gives.
func PluginOwner(name string) string { return fmt.Sprintf("device plugin %q", name) }

// Additions are what a container gets beyond what it is requested with. The zero
// value is nothing. Equal arguments of Merge make equal Additions.
type Additions struct {
	// Env are in the order of their owners; no name is twice in it. Those that the
	// container sets itself are not in it, but for those of an owner that is to win.
	Env []Variable
	// Mounts and Devices are where no other of the container's is. Permissions are
	// never empty.
	Mounts  []discovery.Mount
	Devices []discovery.DeviceSpec
	// Users are to be mapped in all Mounts, so that a file belongs to the same user
	// inside as on the node.
	Users UserNamespace
	// CDI are names of CDI devices, each once.
	CDI []string
	// Annotations are the container's, and name its slots.
	Annotations map[string]string
	// Owners says whose each of these is.
	Owners Owners
}

// None reports whether there are none.
func (a Additions) None() bool {
	return len(a.Env)+len(a.Mounts)+len(a.Devices)+len(a.CDI)+len(a.Annotations) == 0
}

// Owners has the owner of each field of a container that has one: by the variable's
// name, by the clean path in the container, by the CDI device's name, and by the
// annotation's key. What several owners ask for alike is the first one's.
type Owners struct {
	Env, Paths, CDI, Annotations map[string]string
}
