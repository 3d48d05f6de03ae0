package advertise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// What a node may advertise, so that no node fills what everybody watches. The policy
// kubeslot-kubecri-node in deploy/policies/kubecri.yaml refuses more.
const (
	// MaxSlotResources are the akri.sh resources: one for each Configuration of which the
	// node reaches devices.
	MaxSlotResources = 256
	// MaxPluginResources are those in v1alpha1.PluginResourcesAnnotation.
	MaxPluginResources = 100
	// MaxDeviceInfo is the size of assignment.Annotation, in bytes.
	MaxDeviceInfo = 128 << 10
)

// WithheldCondition is True on a node that has more resources than it may advertise. A
// node that never had has no such condition.
//
// Condition of Nodes. Written by kubecri. Read by kubectl-kubeslot, people.
const WithheldCondition = nodewriter.ConditionPrefix + "ResourcesWithheld"

// withhold removes from what is to be advertised the resources beyond the bounds, and
// returns them, sorted. What the node says already stays before others, and the resource
// of an older Configuration before a newer one's. The scheduler gives no slots of a resource
// that the node does not advertise. Pods that have some keep them: kubelets ignore extended
// resources that their node does not have.
func withhold(node *corev1.Node, byAge []string, capacity, allocatable types.ResourceList) (withheld []types.ResourceName) {
	age := map[types.ResourceName]int{}
	for i, name := range slices.Backward(byAge) { // the oldest of a name counts
		age[slotResource(name)] = i - len(byAge) // others, of unknown age, come last
	}
	said := func(name types.ResourceName) int {
		for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
			if _, has := list[corev1.ResourceName(name)]; has {
				return 0
			}
		}
		return 1
	}
	both := maps.Clone(capacity)
	maps.Copy(both, allocatable)
	names := slices.SortedFunc(maps.Keys(both), func(a, b types.ResourceName) int {
		return cmp.Or(cmp.Compare(said(a), said(b)), cmp.Compare(age[a], age[b]), cmp.Compare(a, b))
	})
	slots, plugins := 0, 0
	for _, name := range names {
		count, most := &plugins, MaxPluginResources
		if isSlots(corev1.ResourceName(name)) {
			count, most = &slots, MaxSlotResources
		}
		if *count++; *count > most {
			withheld = append(withheld, name)
			delete(capacity, name)
			delete(allocatable, name)
		}
	}
	slices.Sort(withheld)
	return withheld
}

// namesByAge are the names of the Configurations, the oldest first.
func namesByAge(configurations []*v0.Configuration) []string {
	sorted := slices.SortedFunc(slices.Values(configurations), func(a, b *v0.Configuration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var names []string
	for _, c := range sorted {
		names = append(names, c.Name)
	}
	return names
}

// condition is what the node is to say of the resources that are withheld; false where it
// need not say anything.
func condition(node *corev1.Node, withheld []types.ResourceName) (nodewriter.Condition, bool) {
	if len(withheld) == 0 {
		has := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == WithheldCondition })
		return nodewriter.Condition{Type: WithheldCondition, Status: corev1.ConditionFalse, Reason: "AllAdvertised",
			Message: "all resources of the node are advertised"}, has
	}
	return nodewriter.Condition{Type: WithheldCondition, Status: corev1.ConditionTrue, Reason: "TooManyResources",
		Message: fmt.Sprintf(
			"%d resources are not advertised: a node says at most %d of akri.sh and %d of device plugins. "+
				"New pods get none of them here. Have fewer Configurations see devices on this node, "+
				"or fewer device plugins. Not advertised: %s",
			len(withheld), MaxSlotResources, MaxPluginResources, joined(withheld))}, true
}

func joined(names []types.ResourceName) string {
	const most = 10
	var text []string
	for _, name := range names[:min(len(names), most)] {
		text = append(text, string(name))
	}
	if more := len(names) - most; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ", ")
}
