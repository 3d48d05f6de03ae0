package claims

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Of returns the claims of a pod's slots on the node, each slot once. A slot that
// containers use one after the other is claimed for the first of them.
func Of(pod *v1.Pod, node *v1.Node, containers map[string][]assignment.Grant) []*v1alpha1.SlotClaim {
	var claims []*v1alpha1.SlotClaim
	seen, owner := map[slot.Name]bool{}, v1alpha1.NodeOwner(node.Name, node.UID)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, g := range containers[c.Name] {
			if seen[g.Slot] {
				continue
			}
			seen[g.Slot] = true
			level := v1alpha1.ConfigurationLevel
			if g.InstanceLevel() {
				level = v1alpha1.InstanceLevel
			}
			claims = append(claims, v1alpha1.NewSlotClaim(g.Slot, v1alpha1.SlotClaimSpec{
				NodeName: node.Name, Container: c.Name, Level: level, Holder: string(pod.UID),
				Pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			}, owner))
		}
	}
	return claims
}

// same reports whether a claim that exists is the one that is wanted, made for the
// pod before: the answer was lost, or the scheduler that made it ended.
func same(found, want *v1alpha1.SlotClaim) bool {
	return found.Spec.Holder == want.Spec.Holder && found.Spec.NodeName == want.Spec.NodeName && found.Spec.Level == want.Spec.Level
}

// Held is a slot that cannot be claimed, since another has it.
type Held struct {
	By *v1alpha1.SlotClaim
}

// Error says who has the slot.
func (h *Held) Error() string {
	holder := fmt.Sprintf("holder %s", h.By.Spec.Holder)
	if pod := h.By.Spec.Pod; pod != nil {
		holder = fmt.Sprintf("pod %s/%s (UID %s)", pod.Namespace, pod.Name, pod.UID)
	}
	return fmt.Sprintf("slot %s is claimed by %s on node %s", h.By.Name, holder, h.By.Spec.NodeName)
}
