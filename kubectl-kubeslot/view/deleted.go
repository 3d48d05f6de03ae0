package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// configurationDeleted is the reason of a Configuration that was deleted while pods had its slots.
const configurationDeleted = "ConfigurationDeleted"

// deletedConfiguration is what is left of a Configuration that does not exist any more.
type deletedConfiguration struct {
	namespace string // "" when it is not known: nothing but claims is left
	name      string
	slots     int             // that pods have
	pods      map[string]bool // by namespace/name
	nodes     map[string]bool // whose pods have slots
}

func (d *deletedConfiguration) object() string {
	if d.namespace == "" {
		return "configuration/" + d.name
	}
	return "configuration/" + d.namespace + "/" + d.name
}

func (d *deletedConfiguration) problem() string {
	if len(d.pods) == 0 { // their kubelets have not said which
		return fmt.Sprintf("Configuration %s was deleted while %s in use: apply it again, or delete their pods", d.name, counted(d.slots, "slot was", "slots were"))
	}
	them := "them"
	if len(d.pods) == 1 {
		them = "it"
	}
	return fmt.Sprintf("Configuration %s was deleted while %s: apply it again, or delete %s (%s)",
		d.name, counted(len(d.pods), "pod has its slots", "pods have its slots"), them, some(slices.Sorted(maps.Keys(d.pods)), 3))
}

// configurationOfClaim is the Configuration of the claim's Instance; "" for a name that is not a slot's.
func (v *View) configurationOfClaim(c *v1alpha1.SlotClaim) string {
	at, err := slot.Parse(c.Name)
	if err != nil {
		return ""
	}
	configuration, _ := slot.SplitInstance(at.Instance)
	return configuration
}

// isDeleted reports whether there is no such Configuration; false for a user who may not list all.
func (v *View) isDeleted(configuration string) bool {
	return configuration != "" && v.objects.ConfigurationsOf == "" && v.configurations[configuration] == nil
}

// deleted are the Configurations, by name, that were deleted while pods had their slots.
func (v *View) deleted() []*deletedConfiguration {
	of := map[string]*deletedConfiguration{}
	for _, c := range v.claims {
		configuration := v.configurationOfClaim(c)
		if !v.isDeleted(configuration) {
			continue
		}
		d := of[configuration]
		if d == nil {
			d = &deletedConfiguration{name: configuration, pods: map[string]bool{}, nodes: map[string]bool{}}
			if all := v.of[configuration]; len(all) > 0 {
				d.namespace = all[0].Namespace
			}
			of[configuration] = d
		}
		d.slots++
		d.nodes[c.Spec.NodeName] = true
		for _, p := range v.usersOf(c) {
			d.pods[p.Namespace+"/"+p.Name] = true
		}
	}
	var all []*deletedConfiguration
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[name])
	}
	return all
}

// row is the Configuration among those that there are.
func (d *deletedConfiguration) row() Configuration {
	return Configuration{Namespace: d.namespace, Name: d.name, Counts: Counts{Slots: d.slots, Held: d.slots},
		Nodes:    len(d.nodes),
		Problems: []string{strings.TrimPrefix(d.problem(), "Configuration "+d.name+" was ")}}
}

// examineDeleted finds Configurations that were deleted while pods had their slots.
func (v *View) examineDeleted(f *findings) {
	for _, d := range v.deleted() {
		f.add(d.object(), configurationDeleted, "%s", d.problem())
	}
}
