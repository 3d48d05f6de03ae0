// Package kubecripods places no pods with devices on nodes whose kubecri pod is not Ready: it is being
// updated, or its image cannot be had. Such a kubecri is an NRI plugin, and NRI fails open: without the
// runtime's validator a container would start there without its devices. The package has no state. An
// annotation of the Node has the namespace of its kubecri pod, and the scheduler's snapshot has the pod.
package kubecripods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Reason is why a node is refused.
const Reason = "kubecri is not ready on the node"

// Away reports whether kubecri of the node is to run in a pod, and no such pod is Ready there. It
// looks at the pods of the node until it finds it: a DaemonSet's are among the first.
func Away(node fwk.NodeInfo) bool {
	namespace := node.Node().Annotations[v1alpha1.KubecriNamespaceAnnotation]
	if namespace == "" {
		return false
	}
	for _, p := range node.GetPods() {
		if pod := p.GetPod(); pod.Namespace == namespace && v1alpha1.KubecriReady(pod) {
			return false
		}
	}
	return true
}

// Refused is the status of a node from which kubecri is away. The end of other pods would not help.
func Refused() *fwk.Status { return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, Reason) }

// Came reports whether a change to a pod may be that kubecri has become Ready on a node, as a
// QueueingHintFn is told of it.
func Came(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, now, err := schedutil.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if now != nil && now.Spec.NodeName != "" && v1alpha1.KubecriReady(now) && (before == nil || before.Spec.NodeName == "" || !v1alpha1.KubecriReady(before)) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// Moved reports whether a change to a node may be that its kubecri is to be no pod any more, or one
// of another namespace, as a QueueingHintFn is told of it.
func Moved(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, now, err := schedutil.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if before == nil || now == nil {
		return fwk.QueueSkip, nil
	}
	if was := before.Annotations[v1alpha1.KubecriNamespaceAnnotation]; was != "" && was != now.Annotations[v1alpha1.KubecriNamespaceAnnotation] {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}
