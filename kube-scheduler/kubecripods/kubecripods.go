// Package kubecripods places no pods with devices on nodes whose kubecri pod is not Ready: it is being
// updated, or its image cannot be had. Such a kubecri is an NRI plugin, and NRI fails open: without the
// runtime's validator a container would start there without its devices. The package has no state. An
// annotation of the Node has the namespace of its kubecri pod, and the scheduler's snapshot has the pod.
package kubecripods

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

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
func Refused() *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "kubecri is not ready on the node")
}

// Events are those that help pods which wait for a kubecri: each plugin registers them for its own.
func Events(waits func(*v1.Pod) bool) []fwk.ClusterEventWithHint {
	return []fwk.ClusterEventWithHint{
		informer.On(fwk.Pod, fwk.Add|fwk.Update, came(waits)),
		informer.On(fwk.Node, fwk.UpdateNodeAnnotation, moved(waits)),
	}
}

// came is the hint for a change to a pod that may be that kubecri has become Ready on a node. It helps pods
// that wait for that: the others are not tried in vain for each node on which kubecri is updated.
func came(waits func(*v1.Pod) bool) fwk.QueueingHintFn {
	ready := func(pod *v1.Pod) bool { return pod != nil && pod.Spec.NodeName != "" && v1alpha1.KubecriReady(pod) }
	return informer.Hint(func(pod, before, now *v1.Pod) bool { return ready(now) && !ready(before) && waits(pod) })
}

// moved is the hint for a change to a node that may be that its kubecri is to be no pod any more, or one
// of another namespace. It helps the same pods.
func moved(waits func(*v1.Pod) bool) fwk.QueueingHintFn {
	return informer.Hint(func(pod *v1.Pod, before, now *v1.Node) bool {
		if before == nil || now == nil {
			return false
		}
		was := before.Annotations[v1alpha1.KubecriNamespaceAnnotation]
		return was != "" && was != now.Annotations[v1alpha1.KubecriNamespaceAnnotation] && waits(pod)
	})
}
