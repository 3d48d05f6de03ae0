package v0

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Instance is one discovered device. Pods request it as `akri.sh/<name>`, or
// any of its Configuration's as `akri.sh/<configuration>`. The controller writes
// Instances, from DeviceSlices and SlotClaims, for people and for brokers: nothing is
// decided by them, and an edit is undone.
//
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=akrii,categories=akri
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.spec.configurationName`,description="Configuration that found the device"
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.status.device`,description="The discovery handler's id of the device"
// +kubebuilder:printcolumn:name="Shared",type=boolean,JSONPath=`.spec.shared`,description="Whether several nodes can reach the device"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodeCount`,description="Number of nodes that can reach the device"
// +kubebuilder:printcolumn:name="Slots",type=integer,JSONPath=`.spec.capacity`,description="Number of slots"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.freeSlots`,description="Slots that nobody has claimed"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.status.problems[0]`,description="The first of what is wrong",priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.startsWith(self.spec.configurationName + '-')",message="metadata.name must be <configurationName>-<hash>, at most 63 characters"
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InstanceSpec `json:"spec"`

	// +optional
	Status InstanceStatus `json:"status,omitzero"`
}

// InstanceList is a list of Instances.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type InstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Instance `json:"items"`
}

// InstanceSpec is the device, who can reach it and who uses it.
type InstanceSpec struct {
	// configurationName is the Configuration that found the device.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="configurationName cannot be changed"
	ConfigurationName string `json:"configurationName"`

	// cdiName is the device's fully qualified CDI name,
	// "akri.sh/<configuration>=<hash>".
	// +optional
	CDIName string `json:"cdiName,omitempty"`

	// capacity is the number of slots.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Capacity int32 `json:"capacity,omitempty"`

	// brokerProperties are the device's properties, overridden by those of the
	// Configuration. Its propertyPrefixes says which are environment variables of
	// containers that use the device.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`

	// shared is true when several nodes can reach the device.
	// +optional
	Shared bool `json:"shared"`

	// nodes are those that can reach the device now, at most 100 of them, by name.
	// status.nodeCount has the number of all.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`

	// deviceUsage says who uses which slot: "" is free, "<node>" is held
	// through a request for this Instance, "C:<holder>:<node>" through one for
	// its Configuration. Free slots are listed while the capacity is at most 256; of
	// a larger Instance only those that are held. A missing entry is free.
	// +optional
	DeviceUsage map[string]string `json:"deviceUsage,omitempty"`
}

// MaxListedCapacity is up to which capacity deviceUsage lists free slots, too. A list of
// free slots costs as much as they are, on every write and for everyone who reads it: 200
// Instances of 10,000 slots each took the API server 1.4 GiB.
const MaxListedCapacity = 256

// MaxInstanceNodes is how many nodes an Instance names at most.
const MaxInstanceNodes = 100

// InstanceStatus is what else the controller says of the device.
type InstanceStatus struct {
	// device is the discovery handler's id of the device, such as an address or a path.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Device string `json:"device,omitempty"`

	// freeSlots is how many slots nobody has claimed.
	// +optional
	FreeSlots int32 `json:"freeSlots"`

	// nodeCount is how many nodes can reach the device now.
	// +optional
	NodeCount int32 `json:"nodeCount,omitempty"`

	// problems are what is wrong with reports and claims of the device, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Problems []string `json:"problems,omitempty"`
}
