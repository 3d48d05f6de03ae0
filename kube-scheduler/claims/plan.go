package claims

import (
	"fmt"
	"maps"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Claim is how a pod is to hold slots of one Instance.
type Claim map[slot.Name]slot.Usage

// Of returns the claims of a pod's containers on the node, by Instance name.
func Of(podUID, node string, containers map[string][]assignment.Grant) map[string]Claim {
	claims := map[string]Claim{}
	for _, grants := range containers {
		for _, g := range grants {
			usage := slot.Usage{Node: node}
			if !g.InstanceLevel() {
				usage.Holder = podUID
			}
			if claims[g.Slot.Instance] == nil {
				claims[g.Slot.Instance] = Claim{}
			}
			claims[g.Slot.Instance][g.Slot] = usage
		}
	}
	return claims
}

// slots returns the claim's slots in order.
func (c Claim) slots() []slot.Name {
	return slices.SortedFunc(maps.Keys(c), func(a, b slot.Name) int { return a.Index - b.Index })
}

// Held is a slot that cannot be claimed, since another has it, or it does not
// exist any more.
type Held struct {
	Slot  slot.Name
	Value string // of deviceUsage; "" when the slot does not exist
	// Unreachable is the node, when it is that which cannot reach the device.
	Unreachable string
}

// Error says who has the slot.
func (h *Held) Error() string {
	if h.Unreachable != "" {
		return fmt.Sprintf("slot %s cannot be reached from node %s any more", h.Slot, h.Unreachable)
	}
	if h.Value == "" {
		return fmt.Sprintf("slot %s does not exist any more: its device is gone, or its capacity has shrunk", h.Slot)
	}
	usage, err := slot.ParseUsage(h.Value)
	switch {
	case err != nil:
		return fmt.Sprintf("slot %s is claimed by an unknown holder (deviceUsage %q)", h.Slot, h.Value)
	case usage.ConfigurationLevel():
		return fmt.Sprintf("slot %s is claimed by holder %s on node %s (deviceUsage %q)", h.Slot, usage.Holder, usage.Node, h.Value)
	}
	return fmt.Sprintf("slot %s is claimed by a pod on node %s through its Instance (deviceUsage %q)", h.Slot, usage.Node, h.Value)
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func test(path string, value any) operation { return operation{"test", path, value} }

// entry is the path of a slot's entry. Instance names have none of the characters
// that a JSON pointer escapes.
func entry(name slot.Name) string { return "/spec/deviceUsage/" + name.String() }

// same tests that the Instance is the one that the patch was planned for.
func same(in *akriv0.Instance) operation { return test("/metadata/uid", in.UID) }

// take returns the patch that claims the slots, empty when the pod has all of
// them, or a *Held.
//
// An instance-level claim does not say whose it is. mine says that one with the
// claim's own value was written here, by an attempt whose answer was lost.
func take(in *akriv0.Instance, claim Claim, mine bool) ([]operation, error) {
	patch := []operation{same(in), test("/spec/capacity", in.Spec.Capacity)}
	if in.Spec.DeviceUsage == nil {
		patch = append(patch, test("/spec/deviceUsage", nil), operation{"add", "/spec/deviceUsage", map[string]string{}})
	}
	writes := 0
	for _, name := range claim.slots() {
		usage := claim[name]
		value, listed := in.Spec.DeviceUsage[name.String()]
		switch {
		case value == usage.String() && (mine || usage.ConfigurationLevel()):
			continue
		case value != "":
			return nil, &Held{Slot: name, Value: value}
		case name.Index >= int(in.Spec.Capacity):
			return nil, &Held{Slot: name}
		case !slices.Contains(in.Spec.Nodes, usage.Node):
			return nil, &Held{Slot: name, Unreachable: usage.Node}
		}
		var free any // absent
		if listed {
			free = ""
		}
		patch = append(patch, test(entry(name), free), operation{"add", entry(name), usage.String()})
		writes++
	}
	if writes == 0 {
		return nil, nil
	}
	return patch, nil
}

// release returns the patch that gives back those slots that are claimed as the
// claim says, empty when none is.
func release(in *akriv0.Instance, claim Claim) []operation {
	patch := []operation{same(in)}
	for _, name := range claim.slots() {
		value := claim[name].String()
		if in.Spec.DeviceUsage[name.String()] == value {
			patch = append(patch, test(entry(name), value), operation{"add", entry(name), ""})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	return patch
}
