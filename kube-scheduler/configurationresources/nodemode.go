package configurationresources

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Nodes in device-plugin mode choose the slots of their pods themselves: the kubelet and
// kubecri do, once a pod is bound. For such a node Filter asks the ledger, which has the
// SlotClaims of all nodes, and counts what the kubelet advertises, of Configurations and
// of Instances, for claims come a moment after a pod is bound. Reserve takes no slots, so
// that the pod is bound without an assignment.

// noteMode records whether a node chooses slots itself.
func (b *slotCache) noteMode(node *v1.Node) {
	if v1alpha1.ChoosesSlots(node) {
		b.choosing.Store(node.Name, true)
	} else {
		b.choosing.Delete(node.Name)
	}
}

// choosesSlots reports whether the node chooses slots itself. It takes no lock.
func (b *slotCache) choosesSlots(node string) bool {
	_, chooses := b.choosing.Load(node)
	return chooses
}

// lacks reports why the node's kubelet would not admit the pod, nil if it would: of each
// resource it advertises as many as pods hold, and those that are free.
func lacks(pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	want := amounts(pod)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		total, used := node.GetAllocatable().GetScalarResources()[name], node.GetRequested().GetScalarResources()[name]
		message := fmt.Sprintf("node(s) whose kubelet has too few %s: %d of %d in use, %d requested", name, used, total, want[name])
		switch {
		case want[name] > total:
			return unresolvable(message) // also when other pods go
		case used+want[name] > total:
			return fwk.NewStatus(fwk.Unschedulable, message)
		}
	}
	return nil
}
