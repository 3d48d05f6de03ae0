package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Release is why somebody else than its node may delete a claim.
type Release string

const (
	// ReleasedByNode: nobody else may.
	ReleasedByNode Release = ""
	// ReleaseNodeGone: its Node object is gone, or was deleted and made anew.
	ReleaseNodeGone Release = "NodeGone"
	// ReleaseOutOfService: somebody has said that the node does not run, by a taint.
	ReleaseOutOfService Release = "OutOfService"
	// ReleaseUnreachable: the node was not heard for so long that it has stopped the
	// container, as it promised in the claim.
	ReleaseUnreachable Release = "Unreachable"
)

// ReleaseFacts decide whether a SlotClaim that counts may be deleted by another than its node: by
// the controller, which deletes it, and by kubectl-kubeslot, which says what a slot waits for. As
// long as its Node object exists, a claim is released by the node alone, but for what an operator says.
// That the node is not Ready is its kubelet's word: its containers may run, and kubecri see them.
//
// +k8s:deepcopy-gen=false
type ReleaseFacts struct {
	Claim *SlotClaim
	// Node is the claim's; nil when there is none.
	Node *corev1.Node
	// PodRuns is true when the claim's pod, or one of its ResourceClaim's, exists on the node and has not ended.
	PodRuns bool
	// PodGoing is true when the claim's pod exists and is being deleted.
	PodGoing bool
	// Broker is true for a pod of the controller's own, which it may delete.
	Broker bool
	// Heard says whether kubecri of the node has renewed its Lease, and Silent for how long it has not.
	Heard  bool
	Silent time.Duration
}

// Why returns who but its node may delete the claim.
func (f ReleaseFacts) Why() Release {
	if f.Node == nil || f.replaced() {
		if f.PodRuns {
			return ReleasedByNode
		}
		return ReleaseNodeGone
	}
	// The taint may be left from when the node was off.
	if !f.PodRuns && !f.Claim.Spec.MadeAgain && !Ready(f.Node) && OutOfService(f.Node) {
		return ReleaseOutOfService
	}
	if after, ok := f.Unreachable(); ok && f.Silent >= after {
		return ReleaseUnreachable
	}
	return ReleasedByNode
}

// Unreachable reports whether the claim is released when its node has been silent for so long.
func (f ReleaseFacts) Unreachable() (after time.Duration, ok bool) {
	promised := f.Claim.Spec.ReleaseUnreachableAfter
	if promised == nil || f.Claim.Spec.Pod == nil || !f.Heard || Ready(f.Node) || f.PodRuns && !f.Broker {
		return 0, false
	}
	return promised.Duration, true
}

// Waits reports whether the slot is kept by a node that cannot say whether its container runs: nobody
// but an operator can then release it, or time. Its pod is gone or being deleted, or the claim names
// neither a pod nor a ResourceClaim, as in device-plugin mode.
func (f ReleaseFacts) Waits() bool {
	wanted := f.PodRuns && !f.PodGoing && (f.Claim.Spec.Pod != nil || f.Claim.Spec.ResourceClaim != nil)
	return f.Node != nil && !f.replaced() && !Ready(f.Node) && !wanted
}

// replaced reports whether the claim is owned by an earlier Node object of the name.
func (f ReleaseFacts) replaced() bool {
	owner := f.Claim.OwnerUID()
	return owner != "" && owner != f.Node.UID
}

// PodRuns reports whether the pod, the claim's, may have containers on the claim's node; nil is
// none.
func (c *SlotClaim) PodRuns(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName == c.Spec.NodeName &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// OutOfService reports whether somebody has said that the node does not run.
func OutOfService(node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}

// Ready reports whether there is the node, and its kubelet says that it is Ready.
func Ready(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
