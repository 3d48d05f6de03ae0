package v0

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Instance is one discovered device. Pods request it as `akri.sh/<name>`, or
// any of its Configuration's as `akri.sh/<configuration>`. kubecri creates and
// removes Instances; they are not meant to be edited.
//
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=akrii,categories=all
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.spec.configurationName`,description="Configuration that found the device"
// +kubebuilder:printcolumn:name="Shared",type=boolean,JSONPath=`.spec.shared`,description="Whether several nodes can reach the device"
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.spec.capacity`,description="Number of slots"
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodes`,description="Nodes that can reach the device"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.startsWith(self.spec.configurationName + '-')",message="metadata.name must be <configurationName>-<hash>, at most 63 characters"
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InstanceSpec `json:"spec"`
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

	// brokerProperties are the environment variables of containers that use it:
	// the device's properties, overridden by the Configuration's.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`

	// shared is true when several nodes can reach the device.
	// +optional
	Shared bool `json:"shared,omitempty"`

	// nodes are those that can reach the device now.
	// +optional
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`

	// deviceUsage has an entry for each slot: "" is free, "<node>" is held
	// through a request for this Instance, "C:<holder>:<node>" through one for
	// its Configuration. A missing entry is free.
	// +optional
	DeviceUsage map[string]string `json:"deviceUsage,omitempty"`
}
