package view

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// nodes are those on which a pod can get the Instance: as slices say or, for a user who
// may not list them, as the Instance does.
func (v *View) nodes(in *akriv0.Instance) []string {
	d := v.devices[in.Name]
	if len(d.nodes) == 0 || len(v.objects.Nodes) == 0 && v.discovered(in) {
		return in.Spec.Nodes
	}
	if selected := v.selected(in.Spec.ConfigurationName); selected != nil {
		if len(d.lost) == len(d.nodes) {
			return nil
		}
		return selected
	}
	return slices.DeleteFunc(slices.Clone(d.nodes), func(node string) bool { return slices.Contains(d.lost, node) })
}

// lost are the nodes that no longer know whether the device is there.
func (v *View) lost(in *akriv0.Instance) []string {
	d := v.devices[in.Name]
	if selected := v.selected(in.Spec.ConfigurationName); selected != nil {
		if len(d.lost) < len(d.nodes) || len(d.nodes) == 0 {
			return nil
		}
		return selected
	}
	return d.lost
}

// discovered reports whether nodes reach the device that others discover.
func (v *View) discovered(in *akriv0.Instance) bool {
	c := v.configurations[in.Spec.ConfigurationName]
	return c != nil && c.Spec.Discovery != nil
}

// selected are the nodes that reach what any of them discovers, with spec.discovery;
// nil without it, and for a user who may not list nodes.
func (v *View) selected(configuration string) []string {
	c := v.configurations[configuration]
	if c == nil || c.Spec.Discovery == nil || len(v.objects.Nodes) == 0 {
		return nil
	}
	v.selecting.Lock()
	defer v.selecting.Unlock()
	if names, known := v.selections[configuration]; known {
		return names
	}
	selector := labels.SelectorFromSet(c.Spec.Discovery.NodeSelector)
	names := []string{}
	for i := range v.objects.Nodes {
		if n := &v.objects.Nodes[i]; selector.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	if v.selections == nil {
		v.selections = map[string][]string{}
	}
	v.selections[configuration] = names
	return names
}

// reached are the nodes that reach the Instance, with those that are not sure.
func (v *View) reached(instance string) []string {
	d := v.devices[instance]
	if configuration, _ := slot.SplitInstance(instance); len(d.nodes) > 0 && v.selected(configuration) != nil {
		return v.selected(configuration)
	}
	return d.nodes
}

// unsure says of a device which nodes no longer know whether it is there.
func (v *View) unsure(in *akriv0.Instance) string {
	lost := v.lost(in)
	if len(lost) == 0 {
		return ""
	}
	return fmt.Sprintf("; on %s the discovery handler does not answer, so that it is given to no further pods there", some(lost, 3))
}
