package v1alpha1

import corev1 "k8s.io/api/core/v1"

const (
	// ModeLabel is on Nodes that get no assignments: its value says how the node gives
	// out slots. There is one value, device-plugin.
	//
	// Label of Nodes. Written by kubecri in device-plugin mode. Read by kube-scheduler, kubectl-kubeslot.
	ModeLabel = "kubeslot.io/mode"
	// ModeDevicePlugin is the value where the kubelet's device plugins do: the kubelet
	// and kubecri choose the slots of a pod once it is bound.
	ModeDevicePlugin = "device-plugin"

	// NRIPluginAnnotation is on Nodes where kubecri is an NRI plugin of the runtime: its name.
	// The scheduler has the runtime's validator require it for containers with devices.
	//
	// Annotation of Nodes. Written by kubecri in NRI mode. Read by kube-scheduler, kubectl-kubeslot.
	NRIPluginAnnotation = "kubeslot.io/nri-plugin"
	// KubecriNamespaceAnnotation is on Nodes where such a kubecri runs in a pod with its label: its namespace. The
	// scheduler gives the node no pods with devices while no such pod is Ready there.
	//
	// Annotation of Nodes. Written by kubecri in a pod. Read by kube-scheduler, kubectl-kubeslot.
	KubecriNamespaceAnnotation = "kubeslot.io/kubecri-namespace"

	// StartsWithoutKubecri is the condition of such Nodes that says whether the runtime creates
	// containers without their devices while kubecri is away: its default validator does not
	// require the plugin. kubecri learns it when a container is created.
	//
	// Condition of Nodes. Written by kubecri in NRI mode. Read by kubectl-kubeslot, people.
	StartsWithoutKubecri corev1.NodeConditionType = "kubeslot.io/StartsWithoutKubecri"
)

// ChoosesSlots reports whether the node itself chooses the slots of its pods, so that
// the scheduler must not.
func ChoosesSlots(node *corev1.Node) bool { return node.Labels[ModeLabel] == ModeDevicePlugin }

// IsKubecri reports whether the pod, if its namespace is the one that a node's
// KubecriNamespaceAnnotation names, is one of kubecri's. In that namespace only who installs Kubeslot
// makes pods.
func IsKubecri(pod *corev1.Pod) bool { return pod.Labels["app.kubernetes.io/name"] == "kubecri" }

// KubecriReady reports whether kubecri is ready in such a pod, and stays. That a container beside it
// is not, which is discovery's, takes no devices away.
func KubecriReady(pod *corev1.Pod) bool {
	if !IsKubecri(pod) || pod.DeletionTimestamp != nil {
		return false
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == "kubecri" {
			return s.Ready
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
