package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
)

const (
	// PluginResourcesAnnotation lists the extended resources of node.status, besides slots,
	// that kubecri has put there for device plugins, sorted and separated by commas.
	// It is written with them, and policies/kubecri.yaml rests on it: what is not in
	// the list, such as a resource of the kubelet's own device plugins, is not
	// kubecri's to change.
	//
	// Annotation of Nodes. Written by kubecri. Read by kubecri, kube-scheduler, deploy/policies.
	PluginResourcesAnnotation = "kubeslot.io/plugin-resources"
	// PluginLabelsAnnotation lists the labels of the Node that kubecri has put there for device plugins, sorted
	// and separated by commas. It is written with them, and policies/kubecri.yaml rests on it: a label
	// that is not in the list, such as one of NVIDIA's GPU feature discovery, is not kubecri's to change.
	//
	// Annotation of Nodes. Written by kubecri. Read by kubecri, and the policy of deploy/policies for kubecri.
	PluginLabelsAnnotation = "kubeslot.io/plugin-labels"
)

// PluginResources are the resources in the node's PluginResourcesAnnotation. A container that requests one
// starts only with devices that a scheduler has assigned it.
func PluginResources(node *corev1.Node) []corev1.ResourceName {
	var all []corev1.ResourceName
	for name := range strings.SplitSeq(node.Annotations[PluginResourcesAnnotation], ",") {
		if strings.Contains(name, "/") && !strings.HasPrefix(name, assignment.ResourcePrefix) {
			all = append(all, corev1.ResourceName(name))
		}
	}
	return all
}
