package v0

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BrokerSpec is the workload run for each Instance: a Pod on each node that can
// use it, or one Job. The specs are kept as written, so that an odd one breaks
// its own broker and not every reader of the Configuration.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.brokerPodSpec) && self.brokerPodSpec != null && has(self.brokerJobSpec) && self.brokerJobSpec != null)",message="at most one of brokerPodSpec and brokerJobSpec may be set"
type BrokerSpec struct {
	// brokerPodSpec is a core/v1 PodSpec.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BrokerPodSpec *runtime.RawExtension `json:"brokerPodSpec,omitempty"`
	// brokerJobSpec is a batch/v1 JobSpec.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BrokerJobSpec *runtime.RawExtension `json:"brokerJobSpec,omitempty"`
}

// HasBroker reports whether the Configuration wants pods or Jobs.
func (s *ConfigurationSpec) HasBroker() bool {
	return s.BrokerSpec != nil && (IsSet(s.BrokerSpec.BrokerPodSpec) || IsSet(s.BrokerSpec.BrokerJobSpec))
}

// BrokerLimits is how many broker pods a Configuration has. Those that run stay, also when a
// number is made smaller. What is beyond it is not made until there is room, and then the oldest
// Instance comes first. A Job counts as its parallelism, on the one node that reaches the
// device; when several do, these have perNode places each, together.
type BrokerLimits struct {
	// perNode is how many there may be on one node, 50 without it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	PerNode int32 `json:"perNode,omitempty"`

	// total is how many there may be in the cluster, 1000 without it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Total int32 `json:"total,omitempty"`
}

// BrokerUpdate is how broker pods are replaced.
type BrokerUpdate struct {
	// maxUnavailable is on how many nodes brokers may be replaced at a time: a number, or a per cent of
	// the nodes that have brokers of the Configuration, rounded down, and at least one node. All brokers
	// of a node are replaced together. 1 without it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable must be a number of nodes from 1 to 100000, or 1% to 100% of them, such as 10%; to replace no broker set paused: true"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// paused keeps brokers that run as they are, as spec.paused of a Deployment does: what has changed
	// is for new brokers alone. When it is false again, the others are replaced.
	// +optional
	Paused bool `json:"paused,omitempty"`
}
