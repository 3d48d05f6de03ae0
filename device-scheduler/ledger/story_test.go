package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// story is a ledger, and what the API has. Its methods are commands.
type story struct {
	*Ledger
	strategy  Strategy
	scheduled map[string]scheduled // by UID
	// slicesMade is the time: each slice is a second younger than the one before.
	slicesMade int64
	api        api
}

func newStory() *story {
	return &story{Ledger: New(), strategy: Spread, scheduled: map[string]scheduled{}, api: newAPI()}
}

// rebuilt is what a new scheduler would have.
func (s *story) rebuilt() *Ledger { return s.api.ledger(rand.New(rand.NewPCG(1, 1))) }

func (s *story) setConfiguration(c step) string {
	conf := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: full(c.name), Namespace: c.ns,
		CreationTimestamp: metav1.Unix(arg(c, "created", int64(0)), 0)}}
	if c.HasArg("deleting") {
		conf.DeletionTimestamp = &metav1.Time{}
	}
	if u := arg(c, "unique", ""); u == "none" {
		conf.Spec.UniqueDevices = new(bool)
	} else {
		conf.Spec.UniqueScope = akriv0.UniqueScope(u)
	}
	if c.HasArg("discovery") {
		conf.Spec.Discovery = &akriv0.Discovery{NodeSelector: c.labels("discovery")}
	}
	conf.Spec.Capacity = arg(c, "capacity", int32(1))
	conf.Spec.Allocator = akriv0.Allocator(arg(c, "allocator", ""))
	if now := arg(c, "status", ""); now != "" {
		conf.Status.Allocator = &akriv0.AllocatorStatus{Current: akriv0.Allocator(now)}
	}
	s.api.configurations[conf.Namespace+"/"+conf.Name] = conf
	return s.happened(s.SetConfiguration(conf))
}

func (s *story) setInstance(c step) string {
	nodes := arg(c, "nodes", []string(nil))
	var event Event
	for _, node := range nodes {
		slice := sliceOf(node+"-"+c.ns+"-"+c.name, node, deviceOf(c.name, c.ns, node))
		s.api.slices[slice.Name] = slice
		reported, _ := s.SetSlice(slice)
		event.add(reported)
	}
	for _, slice := range slices.Sorted(maps.Keys(s.api.slices)) {
		if node, of, _ := strings.Cut(slice, "-"); of == c.ns+"-"+c.name && !slices.Contains(nodes, node) {
			delete(s.api.slices, slice)
			event.add(s.DeleteSlice(slice))
		}
	}
	return s.happened(event)
}

func (s *story) setSlice(c step) string {
	slice := sliceOf(c.name, c.node)
	for _, line := range lines(c.Input) {
		words := strings.Fields(line)
		device := deviceOf(words[0], c.ns, c.node)
		for _, how := range words[1:] {
			switch how {
			case "twin":
				device = twinOf(device, "")
			case "local-twin":
				device = twinOf(device, c.node)
			case "wrong":
				device.Hash = "000000"
			case "long":
				device.Hash = slot.InstanceHash(device.ID, device.Shared, c.node, slot.LongHash)
			case "unschedulable":
				device.Unschedulable = true
			case "gone":
				device.Unschedulable, device.Gone = true, true
			default:
				c.Fatalf(c.t, "%s: a device cannot be %s", c.FullCmd(), how)
			}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	s.slicesMade++
	slice.CreationTimestamp = metav1.Unix(s.slicesMade, 0)
	if now := s.api.slices[c.name]; now != nil {
		slice.CreationTimestamp = now.CreationTimestamp
	}
	s.api.slices[c.name] = slice
	event, errs := s.SetSlice(slice)
	var said []string
	for _, err := range errs {
		said = append(said, "left out: "+err.Error())
	}
	return s.happened(event, said...)
}

func (s *story) setClaim(c step) string {
	claim := claimOf(c.slot, c.node, c.pod.UID)
	if c.pod.UID != "" {
		claim.Spec.Pod = &v1alpha1.PodReference{Namespace: "ns", Name: c.pod.Name, UID: types.UID(c.pod.UID)}
	}
	s.api.claims[claim.Name] = claim
	return s.happened(s.SetClaim(claim))
}

// fit returns what the pod gets, or why it gets nothing.
func (s *story) fit(c step) (Assignment, string) {
	a, shortfall := s.Draft(s.strategy, c.pod).Fit(c.node, c.request())
	switch {
	case shortfall == nil:
		return a, ""
	case shortfall.Resolvable():
		return nil, "waits: " + shortfall.String()
	}
	return nil, "cannot: " + shortfall.String()
}

func (s *story) schedule(c step) string {
	a, refusal := s.fit(c)
	if refusal != "" {
		return refusal
	}
	event, err := s.Assume(c.pod, c.node, a)
	if err != nil {
		return "error: " + err.Error()
	}
	s.scheduled[c.pod.UID] = scheduled{c.pod, c.node, a}
	return s.happened(event, show(a))
}

func (s *story) observeForeign(c step) string {
	a := Assignment{}
	for _, line := range lines(c.Input) {
		words := strings.Fields(line)
		for i, name := range words[2:] {
			a[words[0]] = append(a[words[0]], assignment.Grant{Resource: full(words[1]), Ordinal: i, Slot: c.parse(name)})
		}
	}
	if _, known := s.api.pods[c.pod.UID]; !known {
		s.api.pods[c.pod.UID] = scheduled{c.pod, c.node, a}
	}
	return s.observe(scheduled{c.pod, c.node, a})
}

func (s *story) observe(p scheduled) string {
	conflicts, event := s.Observe(p.pod, p.node, p.a)
	var said []string
	for _, c := range conflicts {
		said = append(said, fmt.Sprintf("conflict: %s is held by %s", c.Slot, c.Holder.Name))
	}
	return s.happened(event, said...)
}

func (s *story) preempt(c step) string {
	req := c.request()
	candidates := s.PotentialVictims(req).On(c.node)
	protected := arg(c, "protected", []string(nil))
	for i := range candidates {
		candidates[i].Protected = slices.Contains(protected, candidates[i].Name)
	}
	p := s.Preempt(s.strategy, c.node, req, candidates)
	if p == nil {
		return "no victims help"
	}
	victims := "victims:"
	for _, v := range p.Victims {
		victims += fmt.Sprintf(" %s on %s", v.Name, v.Node)
	}
	if p.Free {
		victims = "fits as it is"
	}
	return s.happened(s.Nominate(c.pod, c.node, p.Assignment), victims, show(p.Assignment))
}

func (s *story) reach(c step) string {
	nodes, shortfall := s.Reach(c.request(), arg(c, "limit", 1000))
	switch {
	case shortfall != nil:
		return "cannot: " + shortfall.String()
	case nodes == nil:
		return "any node"
	}
	return strings.Join(nodes, " ")
}

func (s *story) doubleAllocation(c step) string {
	out := "none"
	for _, d := range s.DoubleAllocations() {
		if d.Slot != c.slot {
			continue
		}
		out = "winner: " + d.Winner.Name
		for _, p := range d.Losers {
			out += "; loser: " + p.Name
		}
	}
	return out
}

// happened is the answer of a command: what it said, and the event, if there is one.
func (s *story) happened(g Event, said ...string) string {
	list := func(names []string) string {
		return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), " ")
	}
	out := said
	if len(g.Freed) > 0 {
		out = append(out, "freed: "+list(g.Freed))
	}
	held := map[int32][]string{}
	for _, name := range g.Preemptible {
		if least, ok := s.MinPreemptorPriority(name); ok {
			held[least] = append(held[least], name.String())
		} else {
			out = append(out, "not preemptible: "+name.String())
		}
	}
	for _, priority := range slices.Sorted(maps.Keys(held)) {
		out = append(out, fmt.Sprintf("preemptible from priority %d: %s", priority, list(held[priority])))
	}
	if len(g.Displaced) > 0 {
		out = append(out, "displaced: "+list(g.Displaced))
	}
	if len(out) == 0 {
		return "no event"
	}
	return strings.Join(out, "\n")
}

func (l *Ledger) show() string {
	var out []string
	for _, d := range l.devices {
		for i, s := range d.all {
			var state []string
			if len(s.holders) > 0 {
				state = append(state, "held by "+strings.Join(s.holderUIDs(), " and "))
			}
			if c := s.claim; c != nil {
				state = append(state, strings.TrimSuffix(fmt.Sprintf("claimed on %s for %s", c.node.name, c.holder), " for "))
				if !c.counts {
					state = append(state, "which does not count")
				}
			}
			switch {
			case d.exists() && s.counted.as == nominated:
				state = append(state, "kept for "+s.nominee.UID)
			case d.withheld:
				state = append(state, "withheld")
			case d.isFree(i):
				state = append(state, "free")
			}
			out = append(out, fmt.Sprintf("%s: %s", slot.Name{Instance: d.name, Index: i}, strings.Join(state, ", ")))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
