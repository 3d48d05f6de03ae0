package advertise

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// countSlots counts the slots that the node reaches, by Configuration: what its
// DeviceSlices list, and so what the scheduler knows. Configurations that own their
// names have an entry, also with none, as those have whose devices DRA gives.
func countSlots(configurations []*v0.Configuration, reported []*v1alpha1.DeviceSlice, node *corev1.Node, reached Reached) map[string]int64 {
	oldest := v0.OldestOf(configurations)
	devices := map[string]bool{} // Instances that have been counted
	slots := map[string]int64{}
	for _, c := range configurations {
		name := c.Name
		if oldest.InForce(name) != c {
			continue
		}
		slots[name] = 0
		if c.Spec.Discovery == nil || !c.GivesSlots() {
			continue
		}
		if n, known := reached(name); known {
			slots[name] = int64(n * c.Spec.Slots())
		} else { // what the node says stands
			says := node.Status.Allocatable[corev1.ResourceName(assignment.ResourcePrefix+name)]
			slots[name] = says.Value()
		}
	}
	for c, d := range deviceslices.Counted(node.Name, reported, oldest) {
		if !devices[d.Instance()] && c.GivesSlots() {
			devices[d.Instance()] = true
			slots[c.Name] += int64(c.Spec.Slots())
		}
	}
	return slots
}
