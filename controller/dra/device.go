package dra

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Taints of devices of which nobody gets a slot, while those who have one keep it.
const (
	// taintGone is on a device that no node sees any more, and that a node lists since it is held there.
	//
	// Taint of devices in ResourceSlices. Written by controller. Read by schedulers, people.
	taintGone = "kubeslot.io/gone"
	// taintUnschedulable is on a device of which no node knows whether it is there.
	//
	// Taint of devices in ResourceSlices. Written by controller. Read by schedulers, people.
	taintUnschedulable = "kubeslot.io/unschedulable"
)

// maxProperties is how many of a device's properties are attributes: what the API allows in a device, less
// the two attributes and the capacity that each has.
const maxProperties = resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice - 3

// published is a device as its ResourceSlice has it.
type published struct {
	Pool   string
	Device resourceapi.Device   // names its node, if it is not shared
	Nodes  *corev1.NodeSelector // of a shared one; nil: all nodes
}

// publish returns how an Instance's device is published; nil for not at all. hostname returns a node's label
// kubernetes.io/hostname, "" for none.
func publish(instance string, d inventory.Device, hostname func(node string) string) *published {
	c := d.Configuration
	if c == nil || !c.Publishes(instance) {
		return nil
	}
	report, nodes, taint := d.Reported, schedulable(d), ""
	switch {
	case report == nil && d.Gone == nil:
		return nil
	case report == nil:
		report, nodes, taint = d.Gone, d.GoneFrom, taintGone
	case len(nodes) == 0:
		nodes, taint = d.Nodes, taintUnschedulable
	}
	p := &published{Pool: instance, Device: resourceapi.Device{
		Name:                     instance,
		Attributes:               attributes(c.Name, instance, report.Properties),
		Capacity:                 slots(c.Spec.Slots()),
		AllowMultipleAllocations: new(true),
		BindsToNode:              new(true),
	}}
	switch {
	case !report.Shared:
		// With spec.discovery all devices are shared, so a device that is not has one node. The device names it:
		// the kubelet deletes slices that name its node, and the scheduler parses a selector again for each node.
		p.Pool, p.Device.NodeName = v1alpha1.DRAPool(instance, nodes[0], false), new(nodes[0])
	case c.Spec.Discovery != nil:
		p.Nodes = nodesLabelled(c.Spec.Discovery.NodeSelector)
	default:
		if p.Nodes = nodesWithHostnames(nodes, hostname); p.Nodes == nil {
			return nil
		}
	}
	if taint != "" {
		p.Device.Taints = []resourceapi.DeviceTaint{{Key: taint, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	return p
}

// schedulable are the nodes that know the device to be there.
func schedulable(d inventory.Device) []string {
	if len(d.Unschedulable) == 0 {
		return d.Nodes
	}
	return slices.DeleteFunc(slices.Clone(d.Nodes), func(node string) bool {
		_, lost := d.Unschedulable[node]
		return lost
	})
}

// attributes are the Configuration's and the Instance's names, and those of the properties that the API lets
// be attributes: the first in the order of their names, where there are too many.
func attributes(
	configuration, instance string, properties map[string]string,
) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value := properties[name]
		if len(name) > resourceapi.DeviceMaxIDLength || len(value) > resourceapi.DeviceAttributeMaxValueLength ||
			len(validation.IsCIdentifier(name)) > 0 ||
			name == v1alpha1.DRAConfiguration || name == v1alpha1.DRAInstance {
			continue
		}
		if len(all) == maxProperties {
			break
		}
		all[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{StringValue: new(value)}
	}
	all[v1alpha1.DRAConfiguration] = resourceapi.DeviceAttribute{StringValue: new(configuration)}
	all[v1alpha1.DRAInstance] = resourceapi.DeviceAttribute{StringValue: new(instance)}
	return all
}

// slots is the capacity of which each result of a claim takes a part, in whole slots.
func slots(capacity int) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	one := resource.NewQuantity(1, resource.DecimalSI)
	valid := &resourceapi.CapacityRequestPolicyRange{Min: one}
	if capacity > 1 { // the API refuses a step that leads beyond the capacity
		valid.Step = one
	}
	if capacity > v1alpha1.DRAMaxSlots {
		valid.Max = resource.NewQuantity(v1alpha1.DRAMaxSlots, resource.DecimalSI)
	}
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{v1alpha1.DRASlots: {
		Value:         *resource.NewQuantity(int64(capacity), resource.DecimalSI),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: one, ValidRange: valid},
	}}
}

// nodesWithHostnames selects the nodes of which the hostname is known; nil for none.
func nodesWithHostnames(nodes []string, hostname func(node string) string) *corev1.NodeSelector {
	names := sets.New[string]()
	for _, node := range nodes {
		names.Insert(hostname(node))
	}
	if names.Delete("").Len() == 0 {
		return nil
	}
	return oneTerm(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: sets.List(names)}}})
}

// nodesLabelled selects the nodes with all the labels; nil, which is all nodes, for none.
func nodesLabelled(labels map[string]string) *corev1.NodeSelector {
	if len(labels) == 0 {
		return nil
	}
	var term corev1.NodeSelectorTerm
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		term.MatchExpressions = append(term.MatchExpressions,
			corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{labels[key]}})
	}
	return oneTerm(term)
}

func oneTerm(term corev1.NodeSelectorTerm) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}
