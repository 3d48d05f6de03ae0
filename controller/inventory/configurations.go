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
	owner       *akriv0.Configuration // of the name, in force; nil when none of these is
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
	change := v.ownerChanged(c.Name, named)
	change.Configurations = append(change.Configurations, named.keys()...)
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
	change := v.ownerChanged(name, named)
	change.Configurations = append(append(change.Configurations, named.keys()...), types.NamespacedName{Namespace: namespace, Name: name})
	v.tidyName(name)
	return change
}

// oldest is the view of all Configurations that says who has a name.
func (v *Inventory) oldest(name string) *akriv0.Configuration {
	named := v.names[name]
	if named == nil {
		return nil
	}
	var oldest *akriv0.Configuration
	for _, c := range named.byNamespace {
		if c.MayOwnName() && akriv0.CompareOwners(c, oldest) < 0 {
			oldest = c
		}
	}
	return oldest
}

// ownerChanged finds the owner of a name anew, and those of the names that depend on it:
// Configurations that are named as Instances of this one.
func (v *Inventory) ownerChanged(name string, named *configurations) Change {
	before := named.owner
	named.owner = akriv0.Oldest(v.oldest).InForce(name)
	var change Change
	for other, those := range v.names {
		if akriv0.MayNameInstanceOf(name, other) && len(those.byNamespace) > 0 {
			change.add(v.ownerChanged(other, those))
			change.Configurations = append(change.Configurations, those.keys()...)
		}
	}
	if (before == nil) != (named.owner == nil) { // the Instance of the name, if there is one
		base, _ := slot.SplitInstance(name)
		if of := v.names[base]; of != nil && v.records[name] != nil {
			change.add(v.judgeAnew(name, of.owner))
		}
	}
	same := before != nil && named.owner != nil && before.UID == named.owner.UID && before.Namespace == named.owner.Namespace &&
		apiequality.Semantic.DeepEqual(&before.Spec, &named.owner.Spec)
	if same {
		change.Brokers = append(change.Brokers, handedOver(named, before)...)
		return change
	}
	if before == nil && named.owner == nil {
		return change
	}
	named.selected = nil
	for instance := range named.instances {
		change.add(v.judgeAnew(instance, before, named.owner))
	}
	return change
}

// handedOver are the Instances that DRA gives now and did not before, or no longer.
func handedOver(named *configurations, before *akriv0.Configuration) []types.NamespacedName {
	if apiequality.Semantic.DeepEqual(before.Status.Allocator, named.owner.Status.Allocator) {
		return nil
	}
	var changed []types.NamespacedName
	for instance := range named.instances {
		if before.Publishes(instance) != named.owner.Publishes(instance) {
			changed = append(changed, key(named.owner, instance))
		}
	}
	return changed
}

// InForce returns the Configuration that has the name, nil for none. It may not be changed.
func (v *Inventory) InForce(name string) *akriv0.Configuration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ownerOf(name)
}

// OfDRA are the Configurations in force whose devices DRA gives, or is to, in no order. They may not be changed.
func (v *Inventory) OfDRA() (all []*akriv0.Configuration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, named := range v.names {
		if named.owner != nil && !named.owner.GivesSlots() {
			all = append(all, named.owner)
		}
	}
	return all
}

// judgeAnew forgets what followed from an Instance's reports. The owners, of which there
// may be none, are those of its Configuration's name, before and now.
func (v *Inventory) judgeAnew(instance string, owners ...*akriv0.Configuration) Change {
	r := v.records[instance]
	r.judged = false
	var change Change
	for _, owner := range owners {
		if owner != nil {
			change.Instances = append(change.Instances, key(owner, instance))
			change.Brokers = append(change.Brokers, key(owner, instance))
		}
	}
	for _, claim := range r.claims {
		change.Claims = append(change.Claims, claim.Name)
	}
	return change
}
