package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// shortWaits makes one wait of the nodes that lack the same. Those that could serve the
// pod once others let go come first.
func (v *View) shortWaits(short map[string]*ledger.Shortfall) []Wait {
	type key struct {
		reason              ledger.Reason
		container, resource string
	}
	groups := map[key][]string{}
	for _, node := range slices.Sorted(maps.Keys(short)) {
		s := short[node]
		k := key{s.Reason, s.Container, s.Resource}
		groups[k] = append(groups[k], node)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b key) int {
		return cmp.Or(cmp.Compare(b.reason, a.reason), cmp.Compare(a.container, b.container), cmp.Compare(a.resource, b.resource))
	})
	var all []Wait
	for _, k := range keys {
		nodes := groups[k]
		best := slices.MaxFunc(nodes, func(a, b string) int { // the first of the best
			return cmp.Or(cmp.Compare(short[a].Free, short[b].Free), cmp.Compare(short[a].Slots, short[b].Slots), cmp.Compare(b, a))
		})
		w := v.shortWait(short[best], nodes)
		if k.reason == ledger.Held {
			w.Why = v.heldText(short[best], best, len(nodes))
			w.Holders = v.holders(k.resource, nodes)
			for _, kept := range []string{v.unreachableHolders(w.Holders), v.unreleased(w.Holders)} {
				if kept != "" {
					w.Why += "; " + kept
				}
			}
		}
		all = append(all, w)
	}
	return all
}

// shortWait is what one Shortfall says.
func (v *View) shortWait(s *ledger.Shortfall, nodes []string) Wait {
	w := Wait{Source: FromKubeslot, Container: s.Container, Resource: s.Resource, Count: int64(s.Needed), Nodes: nodes}
	where := "each node reaches"
	if len(nodes) == 1 {
		where = "node " + nodes[0] + " reaches"
	} else if len(nodes) > 1 {
		where = "none of these nodes reaches more than"
	}
	switch s.Reason {
	case ledger.Unknown:
		if in := v.instances[s.Resource]; in != nil && v.configurations[in.Spec.ConfigurationName] != nil {
			w.Reason, w.Why, w.Needs = "NotReached", "no node sees the device"+v.unsure(in), "a node has to find it again"
			return w
		}
		w.Reason = "NoSuchResource"
		w.Why, w.Needs = v.noSuch(s.Resource)
	case ledger.NoNode, ledger.NotReachable:
		w.Reason, w.Why = "NotReached", "no node reaches the device"
		if len(nodes) > 0 {
			w.Why, w.Needs = "these nodes reach no such device", "a node has to find one"
		}
		if c := v.configurations[s.Resource]; c != nil {
			w.Needs = "a node has to find one"
			if len(v.of[c.Name]) == 0 || len(nodes) == 0 {
				w.Reason, w.Why = "NoDevice", "no node sees a device of this Configuration"+because(v.problems(c))
				w.Needs = fmt.Sprintf("a node has to find a device: kubectl describe configuration -n %s %s", c.Namespace, c.Name)
			}
			for _, in := range v.of[c.Name] {
				if unsure := v.unsure(in); unsure != "" {
					w.Why += unsure
					break
				}
			}
		}
	case ledger.NoCommonNode:
		w.Reason = "DevicesApart"
		w.Why = "no node reaches devices for all that the pod asks for: those that do for its other requests reach none of this"
		w.Needs = "one node has to reach all of them, or the pod has to be split"
	case ledger.Impossible:
		w.Reason = "TooFewDevices"
		switch {
		case s.Unique != "" && s.InstanceLevel:
			w.Why = fmt.Sprintf("it asks for %d slots of one device, and a container gets one of each (uniqueDevices)", s.Needed)
			w.Needs = "ask for 1"
			if s.Slots >= s.Needed {
				w.Needs += ", or set uniqueDevices: false in the Configuration"
			}
		case s.Unique != "":
			w.Why = fmt.Sprintf("it asks for %d different devices, and %s only %d", s.Needed, where, s.Instances)
			w.Needs = "ask for fewer, or have more devices found"
			if s.Slots >= s.Needed { // with a capacity of 1 each slot is another device's
				w.Needs = "ask for fewer, have more devices found, or set uniqueDevices: false in the Configuration"
			}
		default:
			w.Why = fmt.Sprintf("it asks for %d slots, and %s only %d", s.Needed, where, s.Slots)
			w.Needs = "ask for fewer, have more devices found, or raise the Configuration's capacity"
		}
	case ledger.SearchLimit:
		w.Reason = "SearchLimit"
		w.Why = fmt.Sprintf("%d slots are free, and there are too many ways to give them to the pod's containers: the "+
			"search was given up", s.Free)
		w.Needs = "let fewer of its containers ask for it, or set uniqueDevices: false in the Configuration"
	case ledger.Held:
		w.Reason = "SlotsHeld"
		w.Needs = "pods that hold them have to end"
	}
	w.Why = strings.Replace(w.Why, "more than only", "more than", 1)
	return w
}

// heldText says how many are free of how many, on the node that has the most.
func (v *View) heldText(s *ledger.Shortfall, node string, nodes int) string {
	best := "node " + node
	if nodes > 1 {
		best += ", the best of them,"
	}
	own := ""
	if s.Own > 0 {
		own = fmt.Sprintf("; the pod's other requests take %d", s.Own)
	}
	if s.Unique == "" || s.InstanceLevel {
		return fmt.Sprintf("it asks for %s, and %s reaches %d, %d of them free%s", counted(s.Needed, "slot", "slots"), best, s.Slots, s.Free, own)
	}
	open := 0
	for _, in := range v.of[s.Resource] {
		if slices.Contains(v.nodes(in), node) && v.offers(in, node, s.Unique) {
			open++
		}
	}
	what, scope := "with a free slot", ""
	if s.Unique == akriv0.UniquePerNode {
		what = "with a free slot, and without one that a pod of the node has (uniqueScope)"
	} else if s.Unique == akriv0.UniquePerPod {
		scope = " that no other container of the pod has (uniqueScope)"
	}
	return fmt.Sprintf("it asks for %s%s, and %s reaches %d, %d of them %s%s", counted(s.Needed, "device", "different devices"), scope, best, s.Instances, open, what, own)
}

// offers reports whether the Instance has a slot for a configuration-level request on
// the node.
func (v *View) offers(in *akriv0.Instance, node string, unique akriv0.UniqueScope) bool {
	onNode := func(s Slot) bool { return s.Node == node && s.Level == string(v1alpha1.ConfigurationLevel) }
	if unique == akriv0.UniquePerNode && slices.ContainsFunc(v.taken(in), onNode) {
		return false
	}
	return v.counts(in).Free > 0
}

// holders are who has slots that the resource could be served from on the nodes.
func (v *View) holders(resource string, nodes []string) []Slot {
	candidates := v.of[resource]
	if in := v.instances[resource]; v.configurations[resource] == nil && in != nil {
		candidates = []*akriv0.Instance{in}
	}
	on := sets.New(nodes...)
	var all []Slot
	for _, in := range candidates {
		if slices.ContainsFunc(v.nodes(in), on.Has) {
			all = append(all, v.taken(in)...)
		}
	}
	return all
}

// noSuch says of a resource that there is none of its name, which ones there are, and what
// would help.
func (v *View) noSuch(resource string) (why, needs string) {
	configuration, _ := slot.SplitInstance(resource)
	if c := v.configurations[configuration]; c != nil {
		taken := ""
		if v.oldest(resource) != nil {
			taken = "; the Configuration of this name is younger, and finds nothing"
		}
		if len(v.of[configuration]) == 0 {
			return fmt.Sprintf("Configuration %s has no Instance of this name, nor any other%s", configuration, taken),
				fmt.Sprintf("a node has to find the device: kubectl describe configuration -n %s %s", c.Namespace, configuration)
		}
		var instances []string
		for _, in := range v.of[configuration] {
			text := in.Name
			if id := v.deviceID(in); id != "" {
				text += " (" + id + ")"
			}
			instances = append(instances, text)
		}
		return fmt.Sprintf("Configuration %s has no Instance of this name; it has %s%s", configuration, some(instances, 4), taken),
			fmt.Sprintf("ask for one of the Instances that there are (kubectl kubeslot instances -n %s %s), or for "+
				"%s%s, which is any of them", c.Namespace, configuration, assignment.ResourcePrefix, configuration)
	}
	why = "there is no Configuration or Instance of this name that you can see"
	if near := spelling.Nearest(resource, slices.Sorted(maps.Keys(v.configurations))); near != "" {
		return fmt.Sprintf("%s; did you mean %q?", why, near),
			fmt.Sprintf("correct the name in the pod's resources to %s%s, or create the Configuration %s", assignment.ResourcePrefix, near, resource)
	}
	return why, fmt.Sprintf("create the Configuration %s, or correct the name in the pod's resources", resource)
}
