package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// setCapacity sets that of the Instance's Configuration, also of one that is yet to come.
func (s *story) setCapacity(instance string, capacity int32) Event {
	var event Event
	name, _ := slot.SplitInstance(instance)
	for key, c := range s.api.configurations {
		if c.Name == name && s.capacity[name] != capacity {
			c = c.DeepCopy()
			c.Spec.Capacity = capacity
			s.api.configurations[key] = c
			event.add(s.SetConfiguration(c))
		}
	}
	s.capacity[name] = capacity
	return event
}

func (s *story) setSlice(slice *v1alpha1.DeviceSlice) Event {
	s.api.slices[slice.Name] = slice
	event, _ := s.SetSlice(slice)
	return event
}

func parse(t *testing.T, name string) slot.Name {
	n, err := slot.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	n.Instance = full(n.Instance)
	return n
}

// labels reads "key:value" pairs.
func labels(pairs []string) map[string]string {
	labels := map[string]string{}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, ":")
		labels[key] = value
	}
	return labels
}

func lines(input string) []string {
	return strings.FieldsFunc(input, func(r rune) bool { return r == '\n' })
}

func request(t *testing.T, pod Pod, input string) *Request {
	req := &Request{Pod: pod}
	for _, line := range lines(input) {
		words := strings.Fields(line)
		c := ContainerRequest{}
		switch words[0] {
		case "init":
			c.Role, words = Init, words[1:]
		case "sidecar":
			c.Role, words = Sidecar, words[1:]
		}
		c.Name = words[0]
		for _, w := range words[1:] {
			name, count, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatalf("request %q: %v", w, err)
			}
			c.Resources = append(c.Resources, ResourceRequest{Name: full(name), Count: n})
		}
		req.Containers = append(req.Containers, c)
	}
	return req
}

func show(a Assignment) string {
	var out []string
	for name, grants := range a {
		line := name + ":"
		for _, g := range grants {
			line += fmt.Sprintf(" %s/%d=%s", g.Resource, g.Ordinal, g.Slot)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (s *story) happened(g Event) string {
	if g.Empty() {
		return "no event"
	}
	var out []string
	if free := slices.Compact(slices.Sorted(slices.Values(g.Freed))); len(free) > 0 {
		out = append(out, "freed: "+strings.Join(free, " "))
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
		out = append(out, fmt.Sprintf("preemptible from priority %d: %s", priority, strings.Join(slices.Compact(slices.Sorted(slices.Values(held[priority]))), " ")))
	}
	if len(g.Displaced) > 0 {
		out = append(out, "displaced: "+strings.Join(slices.Sorted(slices.Values(g.Displaced)), " "))
	}
	return strings.Join(out, "\n")
}

func (s *story) observed(conflicts []Conflict, g Event) string {
	var out strings.Builder
	for _, c := range conflicts {
		fmt.Fprintf(&out, "conflict: %s is held by %s\n", c.Slot, c.Holder.Name)
	}
	return out.String() + s.happened(g)
}

func (l *Ledger) show() string {
	var out []string
	for _, d := range l.devices {
		for i, s := range d.all {
			var state []string
			if len(s.holders) > 0 {
				state = append(state, "held by "+strings.Join(slices.Sorted(slices.Values(s.holders)), " and "))
			}
			if c := s.claim; c != nil {
				state = append(state, fmt.Sprintf("claimed for %s on %s", c.holder, c.node.name))
				if !c.counts {
					state = append(state, "which does not count")
				}
			}
			switch {
			case d.waitsForNominee(i):
				state = append(state, "kept for "+s.nominee.UID)
			case d.isFree(i):
				state = append(state, "free")
			case len(state) == 0:
				state = append(state, "out of capacity")
			}
			out = append(out, fmt.Sprintf("%s: %s", slot.Name{Instance: d.name, Index: i}, strings.Join(state, ", ")))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
