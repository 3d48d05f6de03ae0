package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/slot"
)

// ConfigurationLabel is the name of the Configuration whose slot is claimed.
//
// Label of SlotClaims. Written by kubecri; kube-scheduler with claimMode Scheduler. Read by kubecri,
// kubectl-kubeslot, people.
const ConfigurationLabel = "kubeslot.io/configuration"

// PodAnnotation is on SlotClaims that name no pod: namespace/name of the pod that was last seen to use
// the slot. It is for people; nothing is decided by it.
//
// Annotation of SlotClaims. Written by kubecri in device-plugin mode. Read by kubectl-kubeslot, people.
const PodAnnotation = "kubeslot.io/pod"

// Level says how a slot was requested.
//
// +kubebuilder:validation:Enum=CL;IL
type Level string

const (
	// ConfigurationLevel is a request for any device of a Configuration.
	ConfigurationLevel Level = "CL"
	// InstanceLevel is a request for one device.
	InstanceLevel Level = "IL"
)

// SlotClaim says who uses a slot. Its name is the slot's: creating it is what takes
// the slot, since only one object can have the name, and deleting it releases the
// slot. The node creates it before a container that uses the slot exists, and
// deletes it when the last one is gone; with claimMode Scheduler the scheduler
// creates it. The Node object owns it. Who else may delete it says ReleaseFacts.
//
// A claim counts only where the node that it names lists the device, and below the
// Configuration's capacity: see ClaimFacts.
//
// +genclient
// +genclient:nonNamespaced
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`,description="Node that uses the slot"
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.pod.namespace`,description="Namespace of the pod"
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod.name`,description="Pod that uses the slot"
// +kubebuilder:printcolumn:name="Container",type=string,JSONPath=`.spec.container`,description="Container that the slot was taken for"
// +kubebuilder:printcolumn:name="Level",type=string,JSONPath=`.spec.level`,description="CL: any device of the Configuration was requested; IL: this one"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?-([0-9a-f]{6}|[0-9a-f]{12})-(0|[1-9][0-9]{0,3})$')",message="metadata.name must be a slot's: <configuration>-<hash>-<index>"
type SlotClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed; delete the claim and create another"
	Spec SlotClaimSpec `json:"spec"`
}

// SlotClaimList is a list of SlotClaims.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SlotClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SlotClaim `json:"items"`
}

// SlotClaimSpec says who uses the slot. It cannot be changed.
type SlotClaimSpec struct {
	// nodeName is the node that uses the slot.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`

	// pod is the one that uses the slot; not known where the kubelet's device
	// manager gives out slots, and of slots that DRA gives.
	// +optional
	Pod *PodReference `json:"pod,omitempty"`

	// resourceClaim is the ResourceClaim that the slot is allocated to; its pods use it.
	// +optional
	ResourceClaim *ResourceClaimReference `json:"resourceClaim,omitempty"`

	// container is the pod's container that the slot was taken for. Others of the
	// pod may use it later: a container after an init container.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Container string `json:"container,omitempty"`

	// level says how the slot was requested.
	Level Level `json:"level"`

	// holder is the pod's UID, the id of the kubelet's device, or what DRAHolder returns.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^:]+$`
	Holder string `json:"holder"`

	// madeAgain is true when the node made the claim for a container that ran already,
	// since somebody had deleted the former claim. The taint node.kubernetes.io/out-of-service
	// does not release such a claim: the node has said that it is in service.
	// +optional
	MadeAgain bool `json:"madeAgain,omitempty"`

	// releaseUnreachableAfter is the Configuration's when the slot was taken: the node stops
	// the container when it has not reached the API server for three quarters of it.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(h|m|s))+$') && duration(self) >= duration('1m')",message="releaseUnreachableAfter must be at least 1m, in h, m and s alone"
	ReleaseUnreachableAfter *metav1.Duration `json:"releaseUnreachableAfter,omitempty"`
}

// PodReference names one pod. Two pods of one name, one after the other, have
// different UIDs. People copy the names into commands, so no other text may be one.
type PodReference struct {
	// namespace is the pod's.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// name is the pod's.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// uid is the pod's: another pod of the same name has another one.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`
}

// ResourceClaimReference names one ResourceClaim.
type ResourceClaimReference struct {
	// namespace is the ResourceClaim's.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// name is the ResourceClaim's.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// uid is the ResourceClaim's: another of the same name has another one.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`
}

// Slot returns the slot that is claimed.
func (c *SlotClaim) Slot() (slot.Name, error) { return slot.Parse(c.Name) }

// Usage is the claim as Instance.spec.deviceUsage shows it.
func (s *SlotClaimSpec) Usage() slot.Usage {
	if s.Level == InstanceLevel {
		return slot.Usage{Node: s.NodeName}
	}
	return slot.Usage{Node: s.NodeName, Holder: s.Holder}
}

// NewSlotClaim makes the claim of a slot. The owner is the Node of spec.nodeName.
func NewSlotClaim(name slot.Name, spec SlotClaimSpec, owner metav1.OwnerReference) *SlotClaim {
	configuration, _ := slot.SplitInstance(name.Instance)
	return &SlotClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name.String(),
			Labels:          map[string]string{ConfigurationLabel: configuration},
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: spec,
	}
}

// NodeOwner is the owner reference of what a node writes: the garbage collector
// deletes it with the Node. It does not block the Node's deletion, which would need
// the right to change finalizers.
func NodeOwner(node string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}
}

// OwnerUID is the UID of the Node object that owns the claim; "" when none does.
func (c *SlotClaim) OwnerUID() types.UID {
	for _, o := range c.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Node" && o.Name == c.Spec.NodeName {
			return o.UID
		}
	}
	return ""
}

// NodeLease is the name, in the namespace kube-node-lease, of the Lease that kubecri of the node
// renews while it has claims with releaseUnreachableAfter. The kubelet's is the node's name.
func NodeLease(node string) string { return "kubecri." + node }

// maxPod is the length of the longest namespace/name.
const maxPod = 63 + len("/") + 253

// HeldBy says who has the slot, and on which node.
func (c *SlotClaim) HeldBy() string {
	who := fmt.Sprintf("a pod that is not known (holder %q)", c.Spec.Holder)
	if seen := c.Annotations[PodAnnotation]; seen != "" {
		who = fmt.Sprintf("pod %.*q", maxPod, seen) // as its node has written it
	}
	if claim := c.Spec.ResourceClaim; claim != nil {
		who = "ResourceClaim " + claim.Namespace + "/" + claim.Name
	}
	if pod := c.Spec.Pod; pod != nil {
		who = "pod " + pod.Namespace + "/" + pod.Name
		if c.Spec.Container != "" { // with claimMode Scheduler it is not known yet
			who = fmt.Sprintf("container %q of %s", c.Spec.Container, who)
		}
	}
	who += " on node " + c.Spec.NodeName
	if c.DeletionTimestamp != nil {
		who += " (and is being deleted)"
	}
	return who
}
