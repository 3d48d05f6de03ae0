package inventory

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what counts of a Node object.
type Node struct {
	UID    types.UID
	Ready  bool
	Labels map[string]string
	// Unschedulable is set while the node is cordoned.
	Unschedulable bool
	Taints        []corev1.Taint
}

// SetNode takes note of a Node object as it is now.
func (v *Inventory) SetNode(name string, node Node) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.nodes[name]
	v.nodes[name] = node
	var change Change
	if !known || !maps.Equal(before.Labels, node.Labels) {
		change = v.selectionChanged(before.Labels, known, node.Labels, true)
	}
	// A taint may say that the node is out of service.
	if !known || before.UID != node.UID || before.Ready != node.Ready ||
		!apiequality.Semantic.DeepEqual(before.Taints, node.Taints) {
		change.Claims = append(change.Claims, v.claimsOfNode.names(name)...)
	}
	if !known || !apiequality.Semantic.DeepEqual(before, node) {
		change.Brokers = append(change.Brokers, v.brokersReaching(name, node.Labels)...)
	}
	return change
}

// DeleteNode forgets a Node object.
func (v *Inventory) DeleteNode(name string) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.nodes[name]
	delete(v.nodes, name)
	change := v.selectionChanged(before.Labels, known, nil, false)
	change.Claims = append(change.Claims, v.claimsOfNode.names(name)...)
	change.Brokers = append(change.Brokers, v.brokersReaching(name, before.Labels)...)
	return change
}

// Nodes returns what counts of those Node objects that exist, by name.
func (v *Inventory) Nodes(names []string) map[string]Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	nodes := make(map[string]Node, len(names))
	for _, name := range names {
		if node, ok := v.nodes[name]; ok {
			nodes[name] = node
		}
	}
	return nodes
}

// brokersReaching returns the Instances that have a broker spec and that the node
// reports, or reaches by their Configuration's spec.discovery. Those that it reports and that
// DRA gives are among them: ResourceSlices name nodes by their hostnames.
func (v *Inventory) brokersReaching(name string, nodeLabels map[string]string) []types.NamespacedName {
	var found []types.NamespacedName
	for _, s := range v.slices {
		if s.Spec.NodeName != name {
			continue
		}
		for i := range s.Spec.Devices {
			instance := s.Spec.Devices[i].Instance()
			if r := v.records[instance]; r == nil {
				continue
			}
			owner := v.configurationsOf(instance).owner
			if owner == nil || owner.Spec.Discovery != nil {
				continue
			}
			if owner.Spec.BrokerSpec != nil || owner.Spec.IsDRA() {
				found = append(found, key(owner, instance))
			}
		}
	}
	for _, named := range v.names {
		owner := named.owner
		if owner == nil || owner.Spec.BrokerSpec == nil || owner.Spec.Discovery == nil {
			continue
		}
		if owner.Spec.Discovery.Selects(nodeLabels) {
			for instance := range named.instances {
				found = append(found, key(owner, instance))
			}
		}
	}
	return found
}

// selectionChanged returns what depends on the nodes that Configurations select by spec.discovery
// or spec.handlerNodeSelector, of those that select a node now or before, and not both.
func (v *Inventory) selectionChanged(before map[string]string, was bool, now map[string]string, is bool) Change {
	var change Change
	for _, named := range v.names {
		if named.owner == nil {
			continue
		}
		if c := named.owner; c.Spec.HandlerOnEach() && (was && handlerSelects(c, before)) != (is && handlerSelects(c, now)) {
			change.Configurations = append(change.Configurations, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		}
		if named.owner.Spec.Discovery == nil {
			continue
		}
		d := named.owner.Spec.Discovery
		if (was && d.Selects(before)) == (is && d.Selects(now)) {
			continue
		}
		named.selected = nil
		for instance := range named.instances {
			change.add(v.judgeAnew(instance, named.owner))
		}
	}
	return change
}

// nodeSet is a set of nodes, and the same in the order of their names. It is not
// changed once it is made.
type nodeSet struct {
	sorted []string
	has    map[string]struct{}
}

func newNodeSet(has map[string]struct{}) *nodeSet {
	return &nodeSet{sorted: slices.Sorted(maps.Keys(has)), has: has}
}

// selectedNodes are those that the owner's spec.discovery selects.
func (v *Inventory) selectedNodes(named *configurations) *nodeSet {
	if named.selected == nil {
		has := map[string]struct{}{}
		for name, node := range v.nodes {
			if named.owner.Spec.Discovery.Selects(node.Labels) {
				has[name] = struct{}{}
			}
		}
		named.selected = newNodeSet(has)
	}
	return named.selected
}

// LacksSlices reports whether there is a Node object of the name and no slice of the
// node's: its kubecri is of a version before DeviceSlices, or has never run.
func (v *Inventory) LacksSlices(node string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, exists := v.nodes[node]
	return exists && v.slicesOfNode[node] == 0
}
