package v0

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of a Configuration's conditions.
const (
	// ConditionReady is true while there are devices and nothing is wrong: no node has a
	// problem, and with brokers all are ready. It is Unknown while no node has said
	// anything.
	ConditionReady = "Ready"
	// ConditionDiscovering is true while the handler works on all nodes that try it,
	// False while it fails on some, and Unknown while no node has said anything.
	ConditionDiscovering = "Discovering"
	// ConditionBrokersReady is true while as many brokers are ready as there should be.
	// A Configuration without brokers does not have it.
	ConditionBrokersReady = "BrokersReady"
	// ConditionAllocatorReady is true when the allocator of the spec gives all devices, and False while a
	// change of it goes on. A Configuration whose allocator was always Slots does not have it.
	ConditionAllocatorReady = "AllocatorReady"
)

// MaxConfigurationProblems is how many problems a Configuration's status lists.
const MaxConfigurationProblems = 16

// ConfigurationStatus counts the Configuration's devices, slots and brokers, and lists
// problems. The controller writes it for people, but for allocator: no component decides by the rest.
type ConfigurationStatus struct {
	// observedGeneration is the generation that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// instances is how many devices there are.
	// +optional
	Instances int32 `json:"instances"`

	// nodes is how many nodes reach at least one of them.
	// +optional
	Nodes int32 `json:"nodes"`

	// slots are those of all Instances.
	// +optional
	Slots SlotCount `json:"slots,omitzero"`

	// allocator is who gives the devices, where that is not the default or was not.
	// +optional
	Allocator *AllocatorStatus `json:"allocator,omitempty"`

	// brokers are those of all Instances.
	// +optional
	Brokers *BrokerCount `json:"brokers,omitempty"`

	// problems keep nodes from discovering, or brokers from running: at most 16, by node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Problems []ConfigurationProblem `json:"problems,omitempty"`

	// conditions are Ready, Discovering and, with brokers, BrokersReady; with DRA, or after it,
	// AllocatorReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SlotCount counts slots.
type SlotCount struct {
	// total is how many there are.
	Total int32 `json:"total"`
	// held is how many of them nodes have claimed.
	Held int32 `json:"held"`
}

// BrokerCount counts brokers: Pods, or Jobs.
type BrokerCount struct {
	// desired is how many there should be.
	Desired int32 `json:"desired"`
	// ready is how many of them are ready; of Jobs, how many have completed.
	Ready int32 `json:"ready"`
	// updated is how many Pods are of the spec and of their device's properties as they are now.
	// +optional
	Updated int32 `json:"updated,omitempty"`
}

// ConfigurationProblem keeps the Configuration from doing what it should.
type ConfigurationProblem struct {
	// node is where; empty for all of the cluster.
	// +optional
	Node string `json:"node,omitempty"`
	// reason is in CamelCase, such as UnknownHandler.
	Reason string `json:"reason"`
	// message says what is wrong and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// count is how many nodes have it, this one included; 0 means 1.
	// +optional
	Count int32 `json:"count,omitempty"`
}
