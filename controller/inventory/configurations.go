package inventory

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// configurations are those of one name.
type configurations struct {
	byNamespace map[string]*akriv0.Configuration
	owner       *akriv0.Configuration // of the name; nil when there is none
	instances   map[string]struct{}   // records whose names begin with the name
	selected    *nodeSet              // by the owner's spec.discovery; nil when not known
}

func (v *Inventory) configurationsNamed(name string) *configurations {
	c := v.names[name]
	if c == nil {
		c = &configurations{byNamespace: map[string]*akriv0.Configuration{}, instances: map[string]struct{}{}}
		v.names[name] = c
	}
	return c
}

// keys are those of all Configurations of the name.
func (c *configurations) keys() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, one := range c.byNamespace {
		keys = append(keys, types.NamespacedName{Namespace: one.Namespace, Name: one.Name})
	}
	return keys
}

func (v *Inventory) configurationsOf(instance string) *configurations {
	name, _ := slot.SplitInstance(instance)
	return v.configurationsNamed(name)
}

func (v *Inventory) tidyName(name string) {
	if c := v.names[name]; c != nil && len(c.byNamespace) == 0 && len(c.instances) == 0 {
		delete(v.names, name)
	}
}

// SetConfiguration takes note of a Configuration as it is now.
func (v *Inventory) SetConfiguration(c *akriv0.Configuration) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	named := v.configurationsNamed(c.Name)
	named.byNamespace[c.Namespace] = c
	change := v.ownerChanged(named)
	change.Configurations = named.keys()
	return change
}

// DeleteConfiguration forgets a Configuration.
func (v *Inventory) DeleteConfiguration(namespace, name string) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	named := v.names[name]
	if named == nil {
		return Change{}
	}
	delete(named.byNamespace, namespace)
	change := v.ownerChanged(named)
	change.Configurations = append(named.keys(), types.NamespacedName{Namespace: namespace, Name: name})
	v.tidyName(name)
	return change
}

// ownerChanged finds the owner of a name anew.
func (v *Inventory) ownerChanged(named *configurations) Change {
	before := named.owner
	named.owner = nil
	for _, c := range named.byNamespace {
		if c.MayOwnName() && (named.owner == nil || akriv0.CompareOwners(c, named.owner) < 0) {
			named.owner = c
		}
	}
	same := before != nil && named.owner != nil && before.UID == named.owner.UID && before.Namespace == named.owner.Namespace &&
		apiequality.Semantic.DeepEqual(&before.Spec, &named.owner.Spec)
	if same || before == nil && named.owner == nil {
		return Change{}
	}
	named.selected = nil
	var change Change
	for instance := range named.instances {
		r := v.records[instance]
		r.judged = false
		for _, owner := range []*akriv0.Configuration{before, named.owner} {
			if owner != nil {
				change.Instances = append(change.Instances, key(owner, instance))
				change.Brokers = append(change.Brokers, key(owner, instance))
			}
		}
		for _, claim := range r.claims {
			change.Claims = append(change.Claims, claim.Name)
		}
	}
	return change
}
