package v0

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Configuration says what kind of device to discover, with which handler, and
// how many pods may use each device at once. Pods request any device of the
// kind as `akri.sh/<name>`.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=akric,categories={akri,all}
// +kubebuilder:printcolumn:name="Handler",type=string,JSONPath=`.spec.discoveryHandler.name`,description="Discovery handler that finds the devices"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether devices are found, and nothing is wrong"
// +kubebuilder:printcolumn:name="Instances",type=integer,JSONPath=`.status.instances`,description="Devices that are there"
// +kubebuilder:printcolumn:name="Slots",type=integer,JSONPath=`.status.slots.total`,description="Slots of all Instances"
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.slots.held`,description="Slots that nodes have claimed"
// +kubebuilder:printcolumn:name="Problem",type=string,JSONPath=`.status.problems[0].reason`,description="The first of what is wrong"
// +kubebuilder:printcolumn:name="Brokers",type=integer,JSONPath=`.status.brokers.ready`,description="Brokers that are ready",priority=1
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.spec.capacity`,description="Slots of each Instance",priority=1
// +kubebuilder:printcolumn:name="Unique",type=boolean,JSONPath=`.spec.uniqueDevices`,description="Whether a container gets at most one slot of an Instance",priority=1
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.uniqueScope`,description="Within what an Instance's slots are given once",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.problems[0].message`,description="What is wrong and what to do",priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 56 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label of at most 56 characters, because akri.sh/<name>-<hash> becomes a resource name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 || !has(self.spec.instanceNameDigits) || self.spec.instanceNameDigits == 6",message="metadata.name must have at most 50 characters with instanceNameDigits 12, because akri.sh/<name>-<hash> becomes a resource name"
type Configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ConfigurationSpec `json:"spec"`

	// +optional
	Status ConfigurationStatus `json:"status,omitzero"`
}

// ConfigurationList is a list of Configurations.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Configuration `json:"items"`
}

// UniqueScope is the extent within which one Instance's slots are given once.
//
// +kubebuilder:validation:Enum=Container;Pod;Node
type UniqueScope string

const (
	// UniquePerContainer: no container gets two slots of one Instance.
	UniquePerContainer UniqueScope = "Container"
	// UniquePerPod: no pod gets two slots of one Instance.
	UniquePerPod UniqueScope = "Pod"
	// UniquePerNode: a node holds at most one slot of an Instance through
	// configuration-level requests.
	UniquePerNode UniqueScope = "Node"
)

// ConfigurationSpec is the desired discovery, and the use of what it finds.
type ConfigurationSpec struct {
	// discoveryHandler finds the devices. Neither its name nor anything else in it can be
	// changed: delete the Configuration and apply it again under the same name. Pods that run
	// keep their slots; the Configuration's own brokers are deleted and start again.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="discoveryHandler cannot be changed: delete the Configuration and apply it again under the same name; pods that run keep their slots, and its own brokers start again"
	DiscoveryHandler DiscoveryHandlerInfo `json:"discoveryHandler"`

	// capacity is the number of slots of each Instance: how many containers may
	// use the device at once. At most 10000, since an Instance lists the user of each slot
	// that is in use, which may be all of them, and etcd takes objects of up to 1.5 MiB.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Capacity int32 `json:"capacity,omitempty"`

	// uniqueDevices keeps a container from getting two slots of one Instance.
	// When false, slots alone count.
	// +optional
	// +default=true
	// +kubebuilder:default=true
	UniqueDevices *bool `json:"uniqueDevices,omitempty"`

	// uniqueScope widens uniqueDevices to the pod or to the node.
	// +optional
	// +default="Container"
	// +kubebuilder:default=Container
	UniqueScope UniqueScope `json:"uniqueScope,omitempty"`

	// instanceNameDigits is how many digits the hash in an Instance's name has: 6, as
	// Akri's, or 12 for thousands of devices, of which two would meet in six digits.
	// It cannot be changed: the Instances would get other names under running pods.
	// +optional
	// +default=6
	// +kubebuilder:default=6
	// +kubebuilder:validation:Enum=6;12
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="instanceNameDigits cannot be changed; create another Configuration"
	InstanceNameDigits int32 `json:"instanceNameDigits,omitempty"`

	// allocator says who gives the devices to pods. Slots, the default, are given by kube-scheduler of
	// Kubeslot to pods that request akri.sh/<configuration>. With DRA the devices are in ResourceSlices of
	// the driver slots.kubeslot.io, and pods get them by ResourceClaims of the DeviceClass
	// <configuration>.slots.kubeslot.io, from any scheduler; it needs Kubernetes 1.36 or newer. It may be
	// changed while pods hold slots: they keep them, and an Instance changes over once nobody holds it.
	// +optional
	// +default="Slots"
	// +kubebuilder:default=Slots
	Allocator Allocator `json:"allocator,omitempty"`

	// discovery has a few nodes discover devices that many nodes reach over the
	// network. Without it each node discovers for itself.
	// +optional
	// +nullable
	Discovery *Discovery `json:"discovery,omitempty"`

	// handlerNodeSelector selects, by labels, the nodes on which the discovery handler runs, as where
	// its hardware is: each of them has to have it, and no other node discovers. Without it the
	// handler has to run somewhere. It has no effect with discovery, which selects nodes itself.
	// +optional
	HandlerNodeSelector map[string]string `json:"handlerNodeSelector,omitempty"`

	// handlerCABundle are the PEM-encoded CA certificates of discovery handlers that register an
	// https:// endpoint: one of them has to have signed the certificate that the endpoint serves.
	// Values that discoveryProperties take from Secrets go to such handlers, to those on a unix socket
	// of the node and to kubecri's own, and to no other.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	HandlerCABundle []byte `json:"handlerCABundle,omitempty"`

	// allowedNamespaces says whose pods may use the devices: those of the Configuration's
	// own namespace, and of these. Without it pods of every namespace may. Pods that hold
	// slots when it changes keep them.
	// +optional
	// +nullable
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// missingDevices says what becomes of a container that was created bypassing kubecri, and
	// so runs without the devices that it was assigned. Recreate, the default, stops it: the
	// kubelet creates it again with its devices. Ignore leaves it running without them.
	// +optional
	// +kubebuilder:validation:Enum=Recreate;Ignore
	MissingDevices MissingDevices `json:"missingDevices,omitempty"`

	// releaseUnreachableAfter says how long a node may be neither Ready nor heard of by
	// kubecri before the controller releases the slots that pods of it held: those that
	// are deleted, and brokers, which it deletes. kubecri stops their containers after
	// three quarters of that time without the API server, so that no two use the slot. Without
	// it a slot is released by its node alone, or when the Node is deleted or has the taint
	// node.kubernetes.io/out-of-service. It applies to slots that are taken from now on, not
	// to nodes in device-plugin mode. At least 1m, at most 24h, as in 90s and 1h30m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="releaseUnreachableAfter must be 1m to 24h, in h, m and s alone, such as 1h30m"
	ReleaseUnreachableAfter *metav1.Duration `json:"releaseUnreachableAfter,omitempty"`

	// maxDevices is how many devices a node reports, 1000 without it. Those that it has reported stay,
	// also when the number is made smaller; of others the first by their ids are reported. How many are
	// left out is a problem in the status.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20000
	MaxDevices int32 `json:"maxDevices,omitempty"`

	// maxInstances is how many devices get an Instance, 10000 without it. Those that have one keep
	// it, also when the number is made smaller. A device beyond it has no Instance, no broker and
	// no Service until there is room, and then the first found comes first; pods get its slots.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxInstances int32 `json:"maxInstances,omitempty"`

	// brokerLimits is how many broker pods there may be of all Instances.
	// +optional
	// +nullable
	BrokerLimits *BrokerLimits `json:"brokerLimits,omitempty"`

	// brokerUpdate is how broker pods that are Ready are replaced when their spec, or a property of
	// their device, has changed.
	// +optional
	// +nullable
	BrokerUpdate *BrokerUpdate `json:"brokerUpdate,omitempty"`

	// brokerSpec is the workload that the controller runs for each Instance.
	// +optional
	// +nullable
	BrokerSpec *BrokerSpec `json:"brokerSpec,omitempty"`

	// instanceServiceSpec is a core/v1 ServiceSpec made for each Instance.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceServiceSpec *runtime.RawExtension `json:"instanceServiceSpec,omitempty"`

	// configurationServiceSpec is a core/v1 ServiceSpec made for all Instances.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	ConfigurationServiceSpec *runtime.RawExtension `json:"configurationServiceSpec,omitempty"`

	// brokerProperties are properties for every container that gets a slot; they win over a
	// device's properties of the same name. propertyPrefixes says which are environment
	// variables of that very name.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`

	// propertyPrefixes are beginnings of names. A property, of a device or of
	// brokerProperties, is an environment variable of its own name only if one of these
	// begins it; as <name>_<HASH> and in AKRI_DEVICES it is there anyway. A device may be
	// anybody's on the network, and must not set PATH or LD_PRELOAD: names that are known to
	// say what code a process runs, or whom it talks to and trusts (KUBECONFIG,
	// HTTPS_PROXY), are never variables. Without this list the prefixes are those of the
	// discovery handlers of Akri and Kubeslot (AKRI_, DEBUG_ECHO_, MDNS_, ONVIF_, OPCUA_,
	// PCI_RESOURCE_, TEMPLATE_, UDEV_ and USB_) and of Akri's brokers (CREDENTIAL_, FORMAT,
	// FRAMES_PER_SECOND, IDENTIFIER, NAMESPACE_INDEX and RESOLUTION_), and the
	// Configuration's own brokers have all of brokerProperties.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[-._a-zA-Z][-._a-zA-Z0-9]*$`
	PropertyPrefixes []string `json:"propertyPrefixes,omitempty"`
}

// Discovery says who discovers, and who reaches what is found.
type Discovery struct {
	// replicas is how many nodes discover at a time.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Replicas int32 `json:"replicas,omitempty"`

	// nodeSelector selects, by labels, the nodes that reach the devices, of which
	// some discover them. Empty selects all nodes.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// HandlerOnEach reports whether each node that discovers has to have the handler, so that one without
// it is a problem though others have it.
func (s *ConfigurationSpec) HandlerOnEach() bool {
	return s.Discovery == nil && len(s.HandlerNodeSelector) > 0
}

// DiscoveryHandlerInfo selects a discovery handler and what it looks for.
type DiscoveryHandlerInfo struct {
	// name is that under which the handler is registered, such as "onvif".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// discoveryDetails are passed to the handler as they are, usually YAML.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	DiscoveryDetails string `json:"discoveryDetails,omitempty"`

	// discoveryProperties are passed to the handler, resolved from Secrets and
	// ConfigMaps where they say so.
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	DiscoveryProperties []DiscoveryProperty `json:"discoveryProperties,omitempty"`
}

// DiscoveryProperty is a named value for the discovery handler.
//
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="exactly one of value and valueFrom must be set"
type DiscoveryProperty struct {
	// name is what the handler knows the property by.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[_A-Za-z][_A-Za-z0-9]*$`
	Name string `json:"name"`
	// value is the property's value.
	// +optional
	Value *string `json:"value,omitempty"`
	// valueFrom is where the value is read from, instead of value.
	// +optional
	ValueFrom *DiscoveryPropertySource `json:"valueFrom,omitempty"`
}

// DiscoveryPropertySource is where a property's value is read from.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef) != has(self.configMapKeyRef)",message="exactly one of secretKeyRef and configMapKeyRef must be set"
type DiscoveryPropertySource struct {
	// secretKeyRef is a key of a Secret.
	// +optional
	SecretKeyRef *DiscoveryPropertyKeySelector `json:"secretKeyRef,omitempty"`
	// configMapKeyRef is a key of a ConfigMap.
	// +optional
	ConfigMapKeyRef *DiscoveryPropertyKeySelector `json:"configMapKeyRef,omitempty"`
}

// DiscoveryPropertyKeySelector selects one key of a Secret or ConfigMap.
type DiscoveryPropertyKeySelector struct {
	// key is the key whose value is read.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
	// name is the object's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace is the object's. It has to be the Configuration's own, or one of those of
	// kubecri's --discovery-property-namespaces.
	// +optional
	// +default="default"
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// optional lets discovery go on without the property when the object or the
	// key does not exist.
	// +optional
	Optional *bool `json:"optional,omitempty"`
}

// HashDigits is how many digits an Instance's hash has, also where the API server did
// not fill in the default.
func (s *ConfigurationSpec) HashDigits() int {
	if s.InstanceNameDigits == slot.LongHash {
		return slot.LongHash
	}
	return slot.ShortHash
}

// Slots is the number of slots of each Instance, also where the API server did not
// fill in the default.
func (s *ConfigurationSpec) Slots() int { return int(max(s.Capacity, 1)) }

// IsSet reports whether the spec of a pod, a Job or a Service is there; null is none.
func IsSet(e *runtime.RawExtension) bool {
	return e != nil && len(e.Raw) > 0 && string(e.Raw) != "null"
}

// Unique reports the scope within which an Instance's slots are given once, and
// "" when uniqueDevices is false.
func (s *ConfigurationSpec) Unique() UniqueScope {
	switch {
	case s.UniqueDevices != nil && !*s.UniqueDevices:
		return ""
	case s.UniqueScope == "":
		return UniquePerContainer
	}
	return s.UniqueScope
}

// MissingDevices is a value of ConfigurationSpec.MissingDevices.
type MissingDevices string

// Values of MissingDevices; "" means Recreate.
const (
	MissingDevicesRecreate MissingDevices = "Recreate"
	MissingDevicesIgnore   MissingDevices = "Ignore"
)
