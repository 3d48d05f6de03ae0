package claims

import (
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
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

// usages returns how the container is to hold each slot. A slot twice is refused.
func (r *Request) usages(node string) (map[slot.Name]slot.Usage, error) {
	usages := make(map[slot.Name]slot.Usage, len(r.Grants))
	for _, g := range r.Grants {
		if _, twice := usages[g.Slot]; twice {
			return nil, Refusef("slot %s is assigned twice to the container", g.Slot)
		}
		usages[g.Slot] = usageOf(g, r.Pod.UID, node)
	}
	return usages, nil
}

// usageOf is how a pod on the node holds a slot that it was granted.
func usageOf(g assignment.Grant, podUID, node string) slot.Usage {
	if g.InstanceLevel() {
		return slot.Usage{Node: node}
	}
	return slot.Usage{Node: node, Holder: podUID}
}

// verify checks that the container gets as many of each resource as it asks for:
// more is not its due, and with fewer it would run without a device.
func (r *Request) verify() error {
	if err := assignment.CheckSurplus(r.Grants, r.Requested); err != nil {
		return Refusef("%v", err)
	}
	granted := map[string]int64{}
	for _, g := range r.Grants {
		granted[g.Resource]++
	}
	var missing []string
	for resource, want := range r.Requested {
		if granted[resource] < want {
			missing = append(missing, resource)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return Refusef("%d slots of %s%s are assigned, and the container requests %d: delete the pod, and its next one is assigned anew",
		granted[missing[0]], assignment.ResourcePrefix, missing[0], r.Requested[missing[0]])
}

// claim returns what to write for the grants that are of this Instance, nothing
// when the container's pod has them already, and refuses what it may not have.
func claim(in *akriv0.Instance, node string, r *Request) (edit, error) {
	if !slices.Contains(in.Spec.Nodes, node) {
		return nil, Refusef("Instance %s cannot be reached from this node (its nodes: %q); creation is retried, and the device may come back",
			in.Name, in.Spec.Nodes)
	}
	e := edit{}
	for _, g := range r.Grants {
		if g.Slot.Instance != in.Name {
			continue
		}
		if !g.InstanceLevel() && g.Resource != in.Spec.ConfigurationName {
			return nil, Refusef("slot %s is assigned for %s%s, but its Instance is of Configuration %s",
				g.Slot, assignment.ResourcePrefix, g.Resource, in.Spec.ConfigurationName)
		}
		want := usageOf(g, r.Pod.UID, node)
		value := in.Spec.DeviceUsage[g.Slot.String()]
		switch {
		case value == want.String():
			// Whether another pod's container here uses it, the book has said. It may
			// lie beyond a capacity that has shrunk since.
		case g.Slot.Index >= int(in.Spec.Capacity):
			return nil, Refusef("slot %s does not exist: Instance %s has capacity %d; delete the pod, and its next one is assigned anew",
				g.Slot, in.Name, in.Spec.Capacity)
		case value == "":
			e.set(g.Slot, want)
		default:
			return nil, Refusef("slot %s is held by %s (deviceUsage %q); it is free when the container that holds it is gone, and creation is retried",
				g.Slot, describe(value), value)
		}
	}
	return e, nil
}

// describe says who holds a slot.
func describe(value string) string {
	usage, err := slot.ParseUsage(value)
	switch {
	case err != nil:
		return "an unknown holder"
	case usage.ConfigurationLevel():
		return "pod UID " + usage.Holder + " on node " + usage.Node
	default:
		return "a pod on node " + usage.Node
	}
}
