package slotcache

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
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

// amount is how much of a Configuration's resource a pod requests.
type amount struct {
	name v1.ResourceName
	n    int64
	// freeAllocatable are what the snapshot's nodes have left of it.
	freeAllocatable freeAllocatable
}

// lacks is Unadvertised for a node in device-plugin mode: of each resource it advertises as
// many as pods hold, and those that are free.
func lacks(pod *v1.Pod, req *ledger.Request, node fwk.NodeInfo) *fwk.Status {
	want, of := slotrequest.Amounts(pod), slotrequest.Resources(req)
	maps.DeleteFunc(want, func(name v1.ResourceName, _ int64) bool { // what DRA gives
		return !slices.Contains(of, strings.TrimPrefix(string(name), assignment.ResourcePrefix))
	})
	for _, name := range slices.Sorted(maps.Keys(want)) {
		total, used := node.GetAllocatable().GetScalarResources()[name], node.GetRequested().GetScalarResources()[name]
		if code := admits(total, used, want[name]); code != fwk.Success {
			return fwk.NewStatus(code, fmt.Sprintf("node(s) whose kubelet has too few %s: %d of %d in use, %d requested", name, used, total, want[name]))
		}
	}
	return nil
}

// admits is whether a kubelet admits a pod that requests n of a resource.
func admits(total, used, n int64) fwk.Code {
	switch {
	case n > total:
		return fwk.UnschedulableAndUnresolvable
	case used+n > total: // pods that use it may be preempted, by DefaultPreemption
		return fwk.Unschedulable
	}
	return fwk.Success
}

// Nodes in device-plugin mode choose the slots of their pods themselves: the kubelet and
// kubecri do, once a pod is bound. For such a node Filter asks the ledger, which has the
// SlotClaims of all nodes, and counts what the kubelet advertises, of Configurations and
// of Instances, for claims come a moment after a pod is bound. Reserve has slots kept until the
// node's claims come, and the pod is bound without an assignment.

// noteMode records whether a node chooses slots itself.
func (b *Cache) noteMode(node *v1.Node) {
	if v1alpha1.ChoosesSlots(node) {
		b.choosing.Store(node.Name, true)
	} else {
		b.choosing.Delete(node.Name)
	}
}

// ChoosesSlots reports whether the node chooses slots itself. It takes no lock.
func (b *Cache) ChoosesSlots(node string) bool {
	_, chooses := b.choosing.Load(node)
	return chooses
}
