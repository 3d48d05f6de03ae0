package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// SetClaim takes note of a claim.
func (v *Inventory) SetClaim(c *v1alpha1.SlotClaim) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	change := v.removeClaim(c.Name)
	s, err := c.Slot()
	if err != nil { // the API refuses such a name
		return change
	}
	v.claims[c.Name] = c
	v.claimsOfNode.add(c.Spec.NodeName, c.Name)
	v.claimsOfPod.add(PodUID(c), c.Name)
	v.record(s.Instance).claims[s.Index] = c
	return v.claimChanged(s.Instance, c.Name)
}

// DeleteClaim forgets a claim.
func (v *Inventory) DeleteClaim(name string) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.removeClaim(name)
}

func (v *Inventory) removeClaim(name string) Change {
	c := v.claims[name]
	if c == nil {
		return Change{}
	}
	delete(v.claims, name)
	v.claimsOfNode.remove(c.Spec.NodeName, name)
	v.claimsOfPod.remove(PodUID(c), name)
	s, _ := c.Slot()
	change := v.claimChanged(s.Instance, name)
	delete(v.records[s.Instance].claims, s.Index)
	v.tidy(s.Instance)
	return change
}

func (v *Inventory) claimChanged(instance, claim string) Change {
	change := Change{Claims: []string{claim}}
	if owner := v.configurationsOf(instance).owner; owner != nil {
		change.Instances = []types.NamespacedName{key(owner, instance)}
	}
	return change
}

// PodUID is that of the pod that a claim was made for.
func PodUID(c *v1alpha1.SlotClaim) types.UID {
	if c.Spec.Pod != nil {
		return c.Spec.Pod.UID
	}
	return types.UID(c.Spec.Holder)
}

// ClaimsOfPod names the claims that were made for a pod.
func (v *Inventory) ClaimsOfPod(uid types.UID) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.claimsOfPod.names(uid)
}

// HeldBeyond counts the slots of a Configuration that are held with numbers of at least the capacity,
// and names their Instances, sorted.
func (v *Inventory) HeldBeyond(of types.NamespacedName, capacity int) (held int, instances []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	named := v.names[of.Name]
	if named == nil || named.owner == nil || named.owner.Namespace != of.Namespace {
		return 0, nil
	}
	for instance := range named.instances {
		r, before := v.records[instance], held
		v.judge(r, named)
		for index, c := range r.claims {
			if index >= capacity && doesNotCount(c, index, r, named.owner) == nil {
				held++
			}
		}
		if held > before {
			instances = append(instances, instance)
		}
	}
	slices.Sort(instances)
	return held, instances
}

// Everything names all Instances that are known of, and all claims.
func (v *Inventory) Everything() Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all Change
	for instance := range v.records {
		if owner := v.configurationsOf(instance).owner; owner != nil {
			all.Instances = append(all.Instances, key(owner, instance))
			all.Brokers = append(all.Brokers, key(owner, instance))
		}
	}
	for _, named := range v.names {
		all.Configurations = append(all.Configurations, named.keys()...)
	}
	for name := range v.claims {
		all.Claims = append(all.Claims, name)
	}
	return all
}
