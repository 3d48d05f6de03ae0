package claims

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Reasons to delete a claim, in metrics and Events.
const (
	nodeGone     = string(v1alpha1.ReleaseNodeGone)
	outOfService = string(v1alpha1.ReleaseOutOfService)
	unreachable  = string(v1alpha1.ReleaseUnreachable)
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
	// counted is whether the claim has counted since it was made. If it never has, the node claimed
	// what it does not reach.
	counted history
	// silent is for how long kubecri of the node has not renewed its Lease; nil when it has none.
	silent *time.Duration
	// allocated is set while the ResourceClaim that the claim was made for has the slot.
	allocated bool
}

// history is what is known of a claim's past.
type history int

const (
	never   history = iota // the claim has not counted since it was made
	unknown                // it may have, before this process looked
	once                   // it has
)

// release is what v1alpha1 decides by.
func (f facts) release() v1alpha1.ReleaseFacts {
	r := v1alpha1.ReleaseFacts{Claim: f.claim, Node: f.node, Broker: isBroker(f.pod)}
	r.PodRuns = f.claim.PodRuns(f.pod) || f.allocated // pods of the ResourceClaim may run
	r.PodGoing = f.pod != nil && f.pod.DeletionTimestamp != nil
	if f.silent != nil {
		r.Heard, r.Silent = true, *f.silent
	}
	return r
}

// verdict says what to do about a claim. The zero verdict is to keep it.
type verdict struct {
	reason  string // to delete the claim for; "" to keep it
	message string
	// afterGrace is set when the reason must have stood for a while.
	afterGrace bool
	// broker is set when the claim's pod, a broker, is to be deleted before.
	broker bool
	// recheck is when a claim that is kept is to be judged again; 0 for not.
	recheck time.Duration
}

// judge decides. A claim that counts, or has counted, is released by its node alone, unless
// v1alpha1.ReleaseFacts say otherwise.
func judge(f facts) verdict {
	release := f.release()
	switch release.Why() {
	case v1alpha1.ReleaseNodeGone:
		if f.node == nil {
			return verdict{reason: nodeGone, message: "the node does not exist, and its pod does not run there"}
		}
		return verdict{reason: nodeGone, message: "the node was deleted and added again, and its pod does not run there"}
	case v1alpha1.ReleaseOutOfService:
		return verdict{reason: outOfService, message: fmt.Sprintf("its pod does not run, and the node has the taint %s: somebody has said that it is off", corev1.TaintNodeOutOfService)}
	case v1alpha1.ReleaseUnreachable:
		return verdict{reason: unreachable, broker: release.PodRuns, message: fmt.Sprintf("the node is not Ready, and kubecri of the node was not heard of for %s: "+
			"it has stopped the container, for its Configuration had releaseUnreachableAfter %s", f.silent.Round(time.Second), f.claim.Spec.ReleaseUnreachableAfter.Duration)}
	}
	kept := verdict{}
	if f.allocated {
		kept.recheck = allocationAgain
	}
	if after, ok := release.Unreachable(); ok {
		kept.recheck = max(after-release.Silent, leaseInterval)
	}
	switch {
	case f.doesNotCount == nil, f.allocated, assigned(f):
	case f.counted == never:
		return verdict{reason: neverCounted, message: fmt.Sprintf("%v, now as when it was claimed, and no pod that runs there was assigned the slot. "+
			"If this goes on, find out who has the credential of kubecri on the node", f.doesNotCount)}
	case f.counted == once, v1alpha1.InNobodysWay(f.doesNotCount):
		// A container may use the slot: the node alone knows, and releases it. The device and the
		// Configuration may come back, and the capacity grow again.
	default:
		return verdict{reason: doesNotCount, afterGrace: true,
			message: fmt.Sprintf("%v, and no pod that runs there was assigned the slot", f.doesNotCount)}
	}
	return kept
}

// assigned reports whether the claim's pod may have containers on its node, and the scheduler gave it the slot.
func assigned(f facts) bool {
	if !f.claim.PodRuns(f.pod) || string(f.pod.UID) != f.claim.Spec.Holder {
		return false
	}
	held, _ := assignment.Held(f.pod) // an error is of a container that is not created
	for _, grants := range held {
		for _, g := range grants {
			if g.Slot.String() == f.claim.Name {
				return true
			}
		}
	}
	return false
}

// isBroker reports whether the pod is the controller's own.
func isBroker(pod *corev1.Pod) bool {
	if pod == nil || pod.Labels[naming.Controller] != naming.ControllerName {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Instance" && strings.HasPrefix(owner.APIVersion, akriv0.GroupName+"/")
}

// suspect reports whether a claim may be somebody else's to delete than its node's, by what the
// caches say: whether its pod exists, but nothing of the pod.
func suspect(f facts, podExists bool) bool {
	switch f.release().Why() {
	case v1alpha1.ReleaseNodeGone, v1alpha1.ReleaseOutOfService:
		return true
	}
	silent := !v1alpha1.Ready(f.node) && (!podExists || f.claim.Spec.ReleaseUnreachableAfter != nil)
	return silent || f.doesNotCount != nil
}
