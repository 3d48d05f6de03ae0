package inventory

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// lacking are the nodes that say they do not have a Configuration's handler, each with how many
// times it says so. It is kept, since a node that joins would else have all slices looked through.
type lacking map[v1alpha1.ConfigurationReference]map[string]int

// count adds what the slice says n times, or takes it away.
func (l lacking) count(s *v1alpha1.DeviceSlice, n int) {
	for _, p := range s.Spec.Problems {
		if p.Reason != v1alpha1.UnknownHandler || p.Configuration == nil {
			continue
		}
		of, node := *p.Configuration, s.Spec.NodeName
		if l[of] == nil {
			l[of] = map[string]int{}
		}
		if l[of][node] += n; l[of][node] == 0 {
			delete(l[of], node)
		}
		if len(l[of]) == 0 {
			delete(l, of)
		}
	}
}

// withoutHandler is how many nodes lack the Configuration's handler, and whether that is a problem.
// The caller holds mu.
func (v *Inventory) withoutHandler(c *akriv0.Configuration) (nodes int, problem bool) {
	nodes = len(v.lacking[v1alpha1.ConfigurationReference{Namespace: c.Namespace, Name: c.Name}])
	return nodes, v1alpha1.LacksHandler(nodes, len(v.slicesOfNode), c.Spec.HandlerOnEach())
}

// reportersChanged names the Configurations whose handler all nodes that report lack, now or before
// one began or ceased to report: one that has it is enough, and may say nothing of them.
func (v *Inventory) reportersChanged(before int) []types.NamespacedName {
	now := len(v.slicesOfNode)
	if now == before {
		return nil
	}
	var changed []types.NamespacedName
	for of, nodes := range v.lacking {
		if n := len(nodes); n == before || n == now {
			changed = append(changed, types.NamespacedName{Namespace: of.Namespace, Name: of.Name})
		}
	}
	return changed
}

// handlerSelects reports whether the Configuration's spec.handlerNodeSelector selects a node.
func (v *Inventory) handlerSelects(c *akriv0.Configuration) bool {
	for _, node := range v.nodes {
		if handlerSelects(c, node.Labels) {
			return true
		}
	}
	return false
}

func handlerSelects(c *akriv0.Configuration, nodeLabels map[string]string) bool {
	return labels.SelectorFromSet(c.Spec.HandlerNodeSelector).Matches(labels.Set(nodeLabels))
}
