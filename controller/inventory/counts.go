package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// OtherReason is in the place of a problem's reason that no kubecri of this version has: a
// node may report any.
const OtherReason = "Other"

// problemReasons are those of kubecri's problems.
var problemReasons = []string{
	"DeviceLimit", "DevicesChangeTooOften", "DevicesRejected", "DiscoveryFailed", "InvalidDiscoveryDetails",
	"NoDiscoveryProperties", "NoLease", "SecretsNeedTLS", "UnknownHandler",
}

// ReasonNameTaken is that of a Configuration whose name is another's.
const ReasonNameTaken = "NameTaken"

// ProblemCount is what kind of problem of which Configuration.
type ProblemCount struct {
	Configuration string // its name
	Reason        string // one of a fixed few
}

// CountProblems counts the nodes that have a problem with a Configuration, by its reason; a
// problem of the whole cluster counts as one. Problems of Configurations that do not exist
// are left out.
func (v *Inventory) CountProblems() map[ProblemCount]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	type problem struct {
		ProblemCount
		node string
	}
	seen := map[problem]bool{}
	counts := map[ProblemCount]int{}
	for _, s := range v.slices {
		for _, p := range s.Spec.Problems {
			if of := p.Configuration; of != nil && p.Reason == v1alpha1.UnknownHandler && v.handlerElsewhere(*of) {
				continue
			}
			reason := p.Reason
			if !slices.Contains(problemReasons, reason) {
				reason = OtherReason
			}
			for _, name := range v.concerned(p.Configuration) {
				count := ProblemCount{name, reason}
				if !seen[problem{count, s.Spec.NodeName}] {
					seen[problem{count, s.Spec.NodeName}] = true
					counts[count]++
				}
			}
		}
	}
	for _, named := range v.names {
		for _, key := range named.keys() {
			if v.takenBy(key) != nil {
				counts[ProblemCount{key.Name, ReasonNameTaken}]++
			}
		}
	}
	return counts
}

// handlerElsewhere reports whether the Configuration's handler runs where it has to, so that a node
// without it is no problem. The caller holds mu.
func (v *Inventory) handlerElsewhere(of v1alpha1.ConfigurationReference) bool {
	named := v.names[of.Name]
	if named == nil || named.byNamespace[of.Namespace] == nil {
		return false
	}
	_, problem := v.withoutHandler(named.byNamespace[of.Namespace])
	return !problem
}

// concerned are the names of the Configurations that a problem is of: all, or one. The
// caller holds mu.
func (v *Inventory) concerned(of *v1alpha1.ConfigurationReference) []string {
	if of != nil {
		if named := v.names[of.Name]; named == nil || named.byNamespace[of.Namespace] == nil {
			return nil
		}
		return []string{of.Name}
	}
	var names []string
	for name, named := range v.names {
		if len(named.byNamespace) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// NodesWithoutSlices counts the Linux nodes that have no DeviceSlice: kubecri has never
// run there, or cannot write.
func (v *Inventory) NodesWithoutSlices() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for name, node := range v.nodes {
		if system := node.Labels[corev1.LabelOSStable]; (system == "" || system == "linux") && v.slicesOfNode[name] == 0 {
			n++
		}
	}
	return n
}
