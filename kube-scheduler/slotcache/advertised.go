package slotcache

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Advertisable are those amounts that nodes advertise: of Configurations. Instances are
// not advertised, and the kubelet ignores extended resources that its node lacks. It
// takes no lock.
func (b *Cache) Advertisable(pod *v1.Pod) map[v1.ResourceName]int64 {
	found := slotrequest.Amounts(pod)
	maps.DeleteFunc(found, func(name v1.ResourceName, _ int64) bool {
		_, kind := b.kinds.Load(strings.TrimPrefix(string(name), assignment.ResourcePrefix))
		return !kind
	})
	return found
}

// amount is how much of a resource a pod requests.
type amount struct {
	name v1.ResourceName
	n    int64
	// kind is set for a Configuration's. Only nodes in device-plugin mode advertise others, as they do for each
	// Instance: as many slots as pods hold, and those that are free.
	kind bool
}

// Unadvertised reports why the node's kubelet would refuse the pod, although the ledger has
// slots for it, nil if it would not: a device is in a DeviceSlice a moment before its node
// advertises it, and pods that did not come through this scheduler count there too.
// (kubelet lifecycle/predicate.go)
func (c *Cycle) Unadvertised(node fwk.NodeInfo) *fwk.Status {
	allocatable, requested := node.GetAllocatable().GetScalarResources(), node.GetRequested().GetScalarResources()
	for _, w := range c.amounts {
		total, used := allocatable[w.name], requested[w.name]
		if used+w.n <= total {
			continue
		}
		chooses := v1alpha1.ChoosesSlots(node.Node())
		if !w.kind && !chooses {
			continue
		}
		code := fwk.Unschedulable // pods that use it may be preempted, by DefaultPreemption
		if w.n > total {
			code = fwk.UnschedulableAndUnresolvable
		}
		if chooses {
			return fwk.NewStatus(code, fmt.Sprintf(
				"node(s) whose kubelet has too few %s: %d of %d in use, %d requested", w.name, used, total, w.n))
		}
		return fwk.NewStatus(code, fmt.Sprintf("node(s) not advertising enough %s: %d of %d in use, %d requested",
			w.name, used, total, w.n))
	}
	return nil
}

// Nodes in device-plugin mode choose the slots of their pods themselves: the kubelet and
// kubecri do, once a pod is bound. For such a node Filter asks the ledger, which has the
// SlotClaims of all nodes, and counts what the kubelet advertises, of Configurations and
// of Instances, for claims come a moment after a pod is bound. Reserve has slots kept until the
// node's claims come, and the pod is bound without an assignment.

// noteMode records whether a node chooses slots itself. It reports whether the node has ceased to.
func (b *Cache) noteMode(node *v1.Node) (ceased bool) {
	if v1alpha1.ChoosesSlots(node) {
		b.choosing.Store(node.Name, true)
		return false
	}
	_, ceased = b.choosing.LoadAndDelete(node.Name)
	return ceased
}

// ChoosesSlots reports whether the node chooses slots itself. It takes no lock.
func (b *Cache) ChoosesSlots(node string) bool {
	_, chooses := b.choosing.Load(node)
	return chooses
}
