package inventory

import (
	"cmp"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Summary is a Configuration in numbers.
type Summary struct {
	// TakenBy is another Configuration that has the name: one of the name, or one that may have
	// an Instance of the name; nil for none. When there is one, all numbers are 0.
	TakenBy   *akriv0.Configuration
	Instances int // devices that a node reports
	Nodes     int // that reach at least one of them
	Slots     int // of all Instances
	Held      int // slots with a claim that counts
	LeftOut   int // reports that do not count
	// FirstLeftOut says of one of these why, the first by Instance.
	FirstLeftOut string
	// Problems are what nodes say, by node, reason and message.
	Problems []NodeProblem
	// Withheld are the names of devices' properties that no container gets as variables of these names, since
	// spec.propertyPrefixes does not let it: the first few, sorted.
	Withheld []string
	// WithoutHandler are the nodes that lack the handler where that is no problem, as it runs on others.
	WithoutHandler int
	// Nowhere is set where spec.handlerNodeSelector selects none of the nodes that there are.
	Nowhere bool
}

// maxPropertyNames bounds how many names of properties are remembered, which a node may make up, and
// maxWithheld how many of them are named.
const maxPropertyNames, maxWithheld = 1000, 10

// NodeProblem is one node's problem with a Configuration.
type NodeProblem struct{ Node, Reason, Message string }

// TakenBy returns another Configuration that has the name of this one; nil for none.
func (v *Inventory) TakenBy(of types.NamespacedName) *akriv0.Configuration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.takenBy(of)
}

func (v *Inventory) takenBy(of types.NamespacedName) *akriv0.Configuration {
	owner := akriv0.Oldest(v.oldest).ResourceOwner(of.Name)
	if owner == nil || owner.Namespace == of.Namespace && owner.Name == of.Name {
		return nil
	}
	return owner
}

// Summary sums up a Configuration.
func (v *Inventory) Summary(of types.NamespacedName) Summary {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := Summary{TakenBy: v.takenBy(of)}
	named := v.names[of.Name]
	if s.TakenBy != nil || named == nil || named.owner == nil {
		return s
	}
	firstLeftOut := ""
	names := map[string]bool{} // of properties: whether they are withheld; the first that were met
	for instance := range named.instances {
		r := v.records[instance]
		v.judge(r, named)
		if r.first != nil {
			s.Instances++
			s.Slots += named.owner.Spec.Slots()
			for name := range r.first.Properties {
				withheld, known := names[name]
				if !known {
					withheld = !named.owner.Spec.MayBeVariable(name)
				}
				if len(names) < maxPropertyNames {
					names[name] = withheld
				}
				if at, listed := slices.BinarySearch(s.Withheld, name); withheld && !listed {
					s.Withheld = slices.Insert(s.Withheld, at, name)
					s.Withheld = s.Withheld[:min(len(s.Withheld), maxWithheld)]
				}
			}
		}
		if s.LeftOut += r.ignored; len(r.leftOut) > 0 && (firstLeftOut == "" || instance < firstLeftOut) {
			firstLeftOut, s.FirstLeftOut = instance, r.leftOut[0]
		}
		for index, c := range r.claims {
			if doesNotCount(c, index, r, named.owner) == nil {
				s.Held++
			}
		}
	}
	s.Nodes = v.nodesReaching(named)
	s.Problems, s.WithoutHandler = v.problemsOf(named.owner)
	s.Nowhere = named.owner.Spec.HandlerOnEach() && len(v.nodes) > 0 && !v.handlerSelects(named.owner)
	return s
}

// nodesReaching counts the nodes that reach a device of the name's owner. It looks at
// no more devices of a node than it needs to find one, for there may be thousands.
func (v *Inventory) nodesReaching(named *configurations) int {
	if named.owner.Spec.Discovery != nil {
		for instance := range named.instances {
			if r := v.records[instance]; r.nodes != nil {
				return len(r.nodes.sorted) // the selected nodes, for all devices
			}
		}
		return 0
	}
	reference := v1alpha1.ConfigurationReference{Namespace: named.owner.Namespace, Name: named.owner.Name}
	reaches := map[string]bool{}
	for _, s := range v.slices {
		node := s.Spec.NodeName
		if reaches[node] {
			continue
		}
		for i := range s.Spec.Devices {
			if s.Spec.Devices[i].Configuration != reference {
				continue
			}
			if r := v.records[s.Spec.Devices[i].Instance()]; r != nil && r.nodes != nil {
				if _, ok := r.nodes.has[node]; ok {
					reaches[node] = true
					break
				}
			}
		}
	}
	return len(reaches)
}

// problemsOf are what nodes say of the Configuration, and how many lack its handler where that is no problem.
func (v *Inventory) problemsOf(c *akriv0.Configuration) (found []NodeProblem, without int) {
	of := v1alpha1.ConfigurationReference{Namespace: c.Namespace, Name: c.Name}
	without, problem := v.withoutHandler(c)
	if problem {
		without = 0
	}
	for _, s := range v.slices {
		for _, p := range s.Spec.Problems {
			if c := p.Configuration; (c == nil || *c == of) && (problem || p.Reason != v1alpha1.UnknownHandler) {
				found = append(found, NodeProblem{Node: s.Spec.NodeName, Reason: p.Reason, Message: p.Message})
			}
		}
	}
	slices.SortFunc(found, func(a, b NodeProblem) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(found), without
}

// problemsChanged names the Configurations that one slice, in the place of another,
// says something else of; either may be nil.
func (v *Inventory) problemsChanged(before, now *v1alpha1.DeviceSlice) []types.NamespacedName {
	var was, is []v1alpha1.Problem
	if before != nil {
		was = before.Spec.Problems
	}
	if now != nil {
		is = now.Spec.Problems
	}
	if apiequality.Semantic.DeepEqual(was, is) {
		return nil
	}
	changed := map[types.NamespacedName]bool{}
	for _, p := range slices.Concat(was, is) {
		if p.Configuration != nil {
			changed[types.NamespacedName{Namespace: p.Configuration.Namespace, Name: p.Configuration.Name}] = true
			continue
		}
		for _, named := range v.names {
			for _, key := range named.keys() {
				changed[key] = true
			}
		}
	}
	return slices.Collect(maps.Keys(changed))
}

// Count is how many Instances a Configuration has of one kind.
type Count struct {
	Configuration string
	Shared        bool
}

// Count counts the devices that nodes report, by the name of their Configuration.
func (v *Inventory) Count() map[Count]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	counts := map[Count]int{}
	for instance, r := range v.records {
		named := v.configurationsOf(instance)
		v.judge(r, named)
		if r.first != nil {
			counts[Count{named.owner.Name, r.first.Shared}]++
		}
	}
	return counts
}
