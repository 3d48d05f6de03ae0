package view

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Node says what a node sees, and which slots its pods have.
type Node struct {
	Name      string     `json:"name"`
	Reports   bool       `json:"reports"` // whether it has a DeviceSlice
	Instances []Instance `json:"instances,omitempty"`
	Slots     []Slot     `json:"slots,omitempty"`
	Problems  []string   `json:"problems,omitempty"`
}

// Node returns what there is to say of the node; false when there is neither a Node
// nor a DeviceSlice of the name.
func (v *View) Node(name string) (Node, bool) {
	n := Node{Name: name}
	exists := slices.ContainsFunc(v.objects.Nodes, func(o corev1.Node) bool { return o.Name == name })
	for i := range v.objects.Slices {
		s := &v.objects.Slices[i]
		if s.Spec.NodeName != name {
			continue
		}
		exists, n.Reports = true, true
		for _, p := range s.Spec.Problems {
			text := p.Reason + ": " + p.Message
			if p.Configuration != nil {
				text = "Configuration " + p.Configuration.String() + ": " + text
			}
			n.Problems = append(n.Problems, text)
		}
	}
	for _, in := range v.Instances() {
		if slices.Contains(in.Nodes, name) || slices.Contains(in.Lost, name) {
			n.Instances = append(n.Instances, in)
		}
	}
	for _, s := range v.Slots() {
		if s.Node == name {
			n.Slots = append(n.Slots, s)
		}
	}
	return n, exists
}

func podOf(p *v1alpha1.PodReference) string {
	if p == nil {
		return "(not known)"
	}
	return p.Namespace + "/" + p.Name
}

// running reports whether the container runs.
func running(pod *corev1.Pod, container string) bool {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.Name == container && s.State.Running != nil {
				return true
			}
		}
	}
	return false
}
