package claims

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Reasons to delete a claim, in metrics and Events.
const (
	nodeGone     = "NodeGone"
	podGone      = "PodGone"
	doesNotCount = "DoesNotCount"
	neverCounted = "NeverCounted"
)

// facts are what there is to know of a claim.
type facts struct {
	claim *v1alpha1.SlotClaim
	node  *corev1.Node // of spec.nodeName; nil when there is none
	// pod is the one that the claim was made for, by UID; nil when there is none, or
	// the claim does not say which.
	pod *corev1.Pod
	// doesNotCount is why the claim does not make its slot taken; nil when it does.
	doesNotCount error
	// counted is false when the claim has not counted since it was made: the node claimed
	// what it does not reach. It is true when that is not known.
	counted bool
}

// verdict says what to do about a claim. The zero verdict is to keep it.
type verdict struct {
	reason  string // to delete the claim for; "" to keep it
	message string
	// afterGrace is set when the reason must have stood for a while.
	afterGrace bool
}

// judge decides. A claim that a container on a node that is Ready may use is kept:
// the node releases it when the container is gone.
func judge(f facts) verdict {
	runs := runsThere(f)
	if !runs {
		switch owner := nodeUID(f.claim); {
		case f.node == nil:
			return verdict{reason: nodeGone, message: "the node does not exist, and its pod does not run there"}
		case owner != "" && owner != string(f.node.UID):
			return verdict{reason: nodeGone, message: "the node was deleted and added again, and its pod does not run there"}
		}
	}
	if f.pod == nil && f.claim.Spec.Pod != nil && !ready(f.node) {
		return verdict{reason: podGone, message: "its pod does not exist, and the node is not Ready, so that it cannot release the slot"}
	}
	// In device-plugin mode no pod says that it has the slot: the node alone knows, and
	// releases it. Its claim stays while that keeps the slot from nobody, if it has counted: the
	// Configuration may come back, and so may the device, and the capacity may grow again.
	if f.claim.Spec.Pod == nil && ready(f.node) && v1alpha1.ChoosesSlots(f.node) && f.counted && v1alpha1.InNobodysWay(f.doesNotCount) {
		return verdict{}
	}
	if f.doesNotCount != nil && !(runs && assigned(f.pod, f.claim)) {
		if !f.counted {
			return verdict{reason: neverCounted, message: fmt.Sprintf("%v, now as when it was claimed, and no pod that runs there was assigned the slot. "+
				"If this goes on, find out who has the credential of kubecri on the node", f.doesNotCount)}
		}
		return verdict{reason: doesNotCount, afterGrace: true,
			message: fmt.Sprintf("%v, and no pod that runs there was assigned the slot", f.doesNotCount)}
	}
	return verdict{}
}

// runsThere reports whether the claim's pod may have containers on the claim's node.
func runsThere(f facts) bool {
	return f.pod != nil && f.pod.Spec.NodeName == f.claim.Spec.NodeName &&
		f.pod.Status.Phase != corev1.PodSucceeded && f.pod.Status.Phase != corev1.PodFailed
}

// assigned reports whether the scheduler gave the pod the claim's slot.
func assigned(pod *corev1.Pod, claim *v1alpha1.SlotClaim) bool {
	if string(pod.UID) != claim.Spec.Holder {
		return false
	}
	held, _ := assignment.Held(pod) // an error is of a container that is not created
	for _, grants := range held {
		for _, g := range grants {
			if g.Slot.String() == claim.Name {
				return true
			}
		}
	}
	return false
}

// nodeUID is that of the Node object that owns the claim; "" when none does.
func nodeUID(claim *v1alpha1.SlotClaim) string {
	for _, o := range claim.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Node" && o.Name == claim.Spec.NodeName {
			return string(o.UID)
		}
	}
	return ""
}

func ready(node *corev1.Node) bool {
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

// suspect reports whether a claim may be nobody's, by what the caches say: whether
// its pod exists, but nothing of the pod.
func suspect(f facts, podExists bool) bool {
	owner := nodeUID(f.claim)
	return f.node == nil || owner != "" && owner != string(f.node.UID) ||
		!podExists && !ready(f.node) || f.doesNotCount != nil
}
