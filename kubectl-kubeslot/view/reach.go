package view

import (
	"fmt"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// nodes are those on which a pod can get the Instance: as slices say or, for a user who
// may not list them, as the Instance does. They are not to be changed.
func (v *View) nodes(in *akriv0.Instance) []string {
	if len(v.reporting) == 0 || len(v.objects.Nodes) == 0 && v.discovered(in) {
		return in.Spec.Nodes
	}
	usable := v.devices[in.Name].usable
	if selected := v.selected(in.Spec.ConfigurationName); selected != nil && len(usable) > 0 {
		return selected
	}
	return usable
}

// lost are the nodes that no longer know whether the device is there.
func (v *View) lost(in *akriv0.Instance) []string {
	d := v.devices[in.Name]
	if selected := v.selected(in.Spec.ConfigurationName); selected != nil {
		if len(d.usable) > 0 || len(d.nodes) == 0 {
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
	return once(&v.selections, configuration, func(string) []string {
		names := []string{}
		for i := range v.objects.Nodes {
			if n := &v.objects.Nodes[i]; c.Spec.Discovery.Selects(n.Labels) {
				names = append(names, n.Name)
			}
		}
		slices.Sort(names)
		return names
	})
}

// reaches reports whether the node reaches the Instance, sure of it or not.
func (v *View) reaches(node, instance string) bool {
	nodes := v.devices[instance].nodes
	if configuration, _ := slot.SplitInstance(instance); len(nodes) > 0 && v.selected(configuration) != nil {
		nodes = v.selected(configuration)
	}
	_, found := slices.BinarySearch(nodes, node)
	return found
}

// unsure says of a device which nodes no longer know whether it is there.
func (v *View) unsure(in *akriv0.Instance) string {
	lost := v.lost(in)
	if len(lost) == 0 {
		return ""
	}
	return fmt.Sprintf("; on %s the discovery handler does not answer, so that it is given to no further pods there", some(lost, 3))
}
