package claims

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Request is a container that is to get slots.
type Request struct {
	Pod       Pod
	Container string
	Sandbox   string
	Grants    []assignment.Grant
	// Requested is how many the container asks for of each resource, by the name
	// that Grant.Resource has.
	Requested map[string]int64
}

func levelOf(g assignment.Grant) v1alpha1.Level {
	if g.InstanceLevel() {
		return v1alpha1.InstanceLevel
	}
	return v1alpha1.ConfigurationLevel
}

// specOf is the claim of a pod's container on the node.
func specOf(node string, pod Pod, container string, level v1alpha1.Level) v1alpha1.SlotClaimSpec {
	return v1alpha1.SlotClaimSpec{NodeName: node, Container: container, Level: level, Holder: pod.UID,
		Pod: &v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}}
}

// same reports whether the claim is there, and is the same pod's on the same node at
// the same level. Containers of a pod share it.
func same(c *v1alpha1.SlotClaim, spec v1alpha1.SlotClaimSpec) bool {
	return c != nil && c.DeletionTimestamp == nil &&
		c.Spec.NodeName == spec.NodeName && c.Spec.Holder == spec.Holder && c.Spec.Level == spec.Level
}

// verify checks that the container gets as many of each resource as it asks for, and no slot twice:
// more than it requests is not its entitlement, and with fewer it would run without a device. It
// returns how the container is to use each slot.
func (r *Request) verify() (map[slot.Name]Use, error) {
	if err := assignment.CheckSurplus(r.Grants, r.Requested); err != nil {
		return nil, Refusef("%v", err)
	}
	granted := map[string]int64{}
	uses := make(map[slot.Name]Use, len(r.Grants))
	for _, g := range r.Grants {
		if _, twice := uses[g.Slot]; twice {
			return nil, Refusef("slot %s is assigned twice to the container", g.Slot)
		}
		uses[g.Slot] = Use{levelOf(g), r.Pod.UID}
		granted[g.Resource]++
	}
	var missing []string
	for resource, want := range r.Requested {
		if granted[resource] < want {
			missing = append(missing, resource)
		}
	}
	if len(missing) == 0 {
		return uses, nil
	}
	slices.Sort(missing)
	return nil, Refusef("%d slots of %s%s are assigned, and the container requests %d: "+
		"delete the pod, and its next one is assigned anew",
		granted[missing[0]], assignment.ResourcePrefix, missing[0], r.Requested[missing[0]])
}

// permit refuses a grant that the pod may not have. One that holds the slot was allowed it when it got it.
func permit(g assignment.Grant, all []*akriv0.Configuration, holds bool, namespace string,
	labelsOf func() (map[string]string, error)) error {
	if err := check(g, all, holds); err != nil || holds {
		return err
	}
	name, _ := slot.SplitInstance(g.Slot.Instance)
	return checkNamespace(g.Slot, Owner(all, name), namespace, labelsOf)
}

// check refuses a grant that the Configurations do not allow. The pod may hold the
// slot already, beyond a capacity that has shrunk since.
func check(g assignment.Grant, all []*akriv0.Configuration, holds bool) error {
	name, _ := slot.SplitInstance(g.Slot.Instance)
	oldest := akriv0.OldestOf(all)
	configuration, namesake := oldest.InForce(name), oldest.InForce(g.Slot.Instance)
	switch {
	case configuration == nil:
		if owner := oldest.ResourceOwner(name); owner != nil {
			return Refusef("slot %s is of Configuration %s, which has no devices: Configuration %s/%s is older, and has or may have an Instance of this name", g.Slot, name, owner.Namespace, owner.Name)
		}
		return Refusef("slot %s is of Configuration %s, which does not exist or is being deleted: apply the Configuration again, or delete the pod; creation is retried", g.Slot, name)
	case namesake != nil && !holds:
		return Refusef("slot %s is of an Instance whose name Configuration %s/%s has, which is older: delete the pod, and its next one is assigned anew", g.Slot, namesake.Namespace, namesake.Name)
	case !g.InstanceLevel() && g.Resource != name:
		return Refusef("slot %s is assigned for %s%s, but its Instance is of Configuration %s", g.Slot, assignment.ResourcePrefix, g.Resource, name)
	case g.Slot.Index >= configuration.Spec.Slots() && !holds:
		return Refusef("slot %s does not exist: Configuration %s has capacity %d; delete the pod, and its next one is assigned anew",
			g.Slot, name, configuration.Spec.Slots())
	}
	return nil
}

// Owner returns the Configuration of the name that is in force, nil when none is: its
// devices are those that the scheduler gives.
func Owner(all []*akriv0.Configuration, name string) *akriv0.Configuration {
	return akriv0.OldestOf(all).InForce(name)
}
