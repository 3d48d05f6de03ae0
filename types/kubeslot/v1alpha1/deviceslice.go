package v1alpha1

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// MaxDevices is how many devices a slice may list.
	MaxDevices = 256
	// MaxSliceBytes is how large a slice's devices may be, encoded as JSON. kubecri keeps to
	// it; of what nodes write the policy in deploy/policies/kubecri.yaml refuses more.
	MaxSliceBytes = 256 << 10
	// MaxSliceProperties is how many properties a slice's devices may have in all: the policy
	// looks at each of them.
	MaxSliceProperties = 8192
	// MaxSlices is how many slices a node may have: their names end with 0 to 99. It bounds
	// what one node can have the scheduler and the controller hold, and etcd.
	MaxSlices = 100
	// MaxProblems is how many problems a slice may list.
	MaxProblems = 64
	// MaxDeviceBytes is how large a device may be, encoded as JSON. One that takes more is
	// not believed, since its Instance would have to hold it as well.
	MaxDeviceBytes = 64 << 10
	// MaxIDLength is how long a device's id may be, in characters.
	MaxIDLength = 1024
	// MaxMessageLength is how long a problem's message may be, in characters.
	MaxMessageLength = 1024
)

// DeviceSlice is a part of what one node sees: devices, and what keeps it from
// seeing more. That node's kubecri alone writes it, and the Node object owns it, so
// that a node that is deleted takes its slices along. A node has as many as its
// devices need, and at least one. Its name is `<node>-<n>`, 0 ≤ n < 100.
//
// +genclient
// +genclient:nonNamespaced
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`,description="Node that sees the devices"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Configuration",type=string,JSONPath=`.spec.problems[0].configuration.name`,description="The Configuration that the first problem is of",priority=1
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.spec.problems[0].message`,description="The first of what keeps the node from seeing more",priority=1
type DeviceSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DeviceSliceSpec `json:"spec"`
}

// DeviceSliceList is a list of DeviceSlices.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type DeviceSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DeviceSlice `json:"items"`
}

// DeviceSliceSpec is what the node sees.
type DeviceSliceSpec struct {
	// nodeName is the node that sees the devices. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName cannot be changed"
	NodeName string `json:"nodeName"`

	// devices are those that the node sees, in any order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Devices []Device `json:"devices,omitempty"`

	// problems keep the node from seeing more.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Problems []Problem `json:"problems,omitempty"`
}

// Device is one device as a node sees it. Its mounts and device nodes stay on the
// node.
type Device struct {
	// configuration is the one that the device was found for.
	Configuration ConfigurationReference `json:"configuration"`

	// id tells the device apart from all others of its Configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ID string `json:"id"`

	// hash is that of the id, with the node's name when the device is not shared;
	// see slot.InstanceHash. The Instance is `<configuration>-<hash>`. One that does
	// not fit the id is not believed.
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{6}|[0-9a-f]{12})$`
	Hash string `json:"hash"`

	// shared is true when equal ids mean the same device on every node.
	// +optional
	Shared bool `json:"shared,omitempty"`

	// unschedulable is true when the node no longer knows whether the device is there,
	// since its discovery handler does not answer: pods that hold slots of it keep them,
	// and no other pod gets one on this node.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`

	// gone is true when the node no longer sees the device, and lists it only because
	// containers there hold slots of it: their SlotClaims count while it is listed. In all
	// other respects it is as if it were not listed. Set with unschedulable, which readers
	// that do not know this field go by.
	// +optional
	Gone bool `json:"gone,omitempty"`

	// properties are what the discovery handler says of the device. propertyPrefixes
	// of the Configuration says which are environment variables of containers.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Properties map[string]PropertyValue `json:"properties,omitempty"`
}

// PropertyValue is the value of a device's property. Of id and properties a device may have
// 64 KiB in all: one that has more is not believed.
//
// +kubebuilder:validation:MaxLength=65536
type PropertyValue = string // an alias, so that properties are a map[string]string

// ConfigurationReference names a Configuration of akri.sh.
type ConfigurationReference struct {
	// namespace is the Configuration's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the Configuration's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=56
	Name string `json:"name"`
}

// String returns namespace/name.
func (r ConfigurationReference) String() string { return r.Namespace + "/" + r.Name }

// Problem keeps a node from seeing a Configuration's devices, or some of them.
type Problem struct {
	// configuration is the one that is concerned; none when all are.
	// +optional
	Configuration *ConfigurationReference `json:"configuration,omitempty"`

	// reason is in CamelCase, such as UnknownHandler.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// message says what is wrong and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// UnknownHandler is the reason of a Problem: the node does not have the Configuration's handler.
const UnknownHandler = "UnknownHandler"

// LacksHandler reports whether it is a problem that so many of the nodes that report do not have a
// Configuration's handler: none of them has it, or it should be on each.
func LacksHandler(without, reporting int, onEach bool) bool {
	return without > 0 && (onEach || without == reporting)
}

// Instance returns the name of the device's Instance.
func (d *Device) Instance() string { return slot.InstanceName(d.Configuration.Name, d.Hash) }

// CountsFor reports whether the node's report says that the device is there, and is believed: it is for
// the Configuration, whose hashes have so many digits, and the device is what it says.
func (d *Device) CountsFor(c ConfigurationReference, digits int, node string) bool {
	return d.Configuration == c && !d.Gone && len(d.Hash) == digits && d.Check(node) == nil
}

// Check returns an error when the device is not what it says, or too large: whoever
// reads a slice must leave out such a device. Without this a node could report another
// node's local device as its own, or fill the Instance of a device that others share.
func (d *Device) Check(node string) error {
	if d.ID == "" {
		return errors.New("a device without id")
	}
	if n := len(d.Hash); n != slot.ShortHash && n != slot.LongHash {
		return fmt.Errorf("device %.64q: hash %.64q has not %d or %d digits", d.ID, d.Hash, slot.ShortHash, slot.LongHash)
	}
	if want := slot.InstanceHash(d.ID, d.Shared, node, len(d.Hash)); want != d.Hash {
		return fmt.Errorf("device %.64q: hash %q is not that of its id, which is %q", d.ID, d.Hash, want)
	}
	size := len(d.ID)
	for name, value := range d.Properties {
		size += len(name) + len(value)
	}
	if size > MaxDeviceBytes {
		return fmt.Errorf("device %.64q: its id and properties have %d bytes, of %d that are allowed", d.ID, size, MaxDeviceBytes)
	}
	return nil
}
