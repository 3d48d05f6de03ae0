package ledger

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// rules say what the containers of a pod may have on a node, apart from how Fit
// finds it: its answers are held against them, and the search that it is compared
// with follows them.
type rules struct {
	req *Request
	// instances are those that the node reaches, by name.
	instances map[string]*instance
	unique    map[string]akriv0.UniqueScope // by Configuration
	// taken says who has a slot already, "" if it is free for the pod.
	taken func(slot.Name) string
	// onNode are the Instances of which another pod on the node has a
	// configuration-level slot.
	onNode map[string]bool
}

// against says what is wrong with container i getting the grant besides what the
// containers have got; "" if nothing is.
func (u *rules) against(got [][]assignment.Grant, i int, g assignment.Grant) string {
	in := u.instances[g.Slot.Instance]
	if in == nil || g.Slot.Index >= in.capacity {
		return "the node cannot use it"
	}
	if g.Resource != in.name && g.Resource != in.configuration {
		return "it is not what was asked for"
	}
	if by := u.taken(g.Slot); by != "" {
		return "it is taken: " + by
	}
	unique := u.unique[in.configuration]
	if unique == akriv0.UniquePerNode && !g.InstanceLevel() && u.onNode[in.name] {
		return "another pod has its Instance on the node"
	}
	for j, grants := range got {
		for _, other := range grants {
			same, cl := other.Slot == g.Slot, !other.InstanceLevel() && !g.InstanceLevel()
			switch {
			case other.Slot.Instance != in.name:
			case same && u.overlap(i, j):
				return fmt.Sprintf("container %d has it at the same time", j)
			case same && other.InstanceLevel() != g.InstanceLevel():
				return fmt.Sprintf("container %d has it at another level", j)
			case unique != "" && i == j:
				return fmt.Sprintf("the container has %s already", other.Slot)
			case unique == akriv0.UniquePerPod && !same, unique == akriv0.UniquePerNode && cl && !same:
				return fmt.Sprintf("container %d has %s", j, other.Slot)
			}
		}
	}
	return ""
}

// overlap reports whether there is a time at which both containers run.
func (u *rules) overlap(i, j int) bool {
	runs := func(i int) (from, to int) {
		end := len(u.req.Containers)
		switch u.req.Containers[i].Role {
		case Init:
			return i, i
		case Sidecar:
			return i, end
		}
		return end, end
	}
	fromI, toI := runs(i)
	fromJ, toJ := runs(j)
	return max(fromI, fromJ) <= min(toI, toJ)
}

// check checks that each container gets what it asked for, and nothing against the
// rules.
func (u *rules) check(t failer, a Assignment) {
	t.Helper()
	got := make([][]assignment.Grant, len(u.req.Containers))
	all := 0
	for i, c := range u.req.Containers {
		ordinals := map[string][]int{}
		for _, g := range a[c.Name] {
			if wrong := u.against(got, i, g); wrong != "" {
				t.Fatalf("container %d of %+v got %s for %s, but %s; all it got: %v", i, u.req, g.Slot, g.Resource, wrong, a)
			}
			got[i] = append(got[i], g)
			ordinals[g.Resource] = append(ordinals[g.Resource], g.Ordinal)
			all++
		}
		for _, r := range c.Resources {
			slices.Sort(ordinals[r.Name])
			for n := range r.Count {
				if len(ordinals[r.Name]) != r.Count || ordinals[r.Name][n] != n {
					t.Fatalf("container %d asked for %d of %s, and got numbers %v", i, r.Count, r.Name, ordinals[r.Name])
				}
			}
			all -= r.Count
		}
	}
	if all != 0 {
		t.Fatalf("%+v got %d slots too many: %v", u.req, all, a)
	}
}

// search looks for any assignment within the rules, by trying them all.
type search struct {
	rules
	got [][]assignment.Grant
}

// one is one slot that a container asks for.
type one struct {
	container int
	resource  string
	from      []string // the Instances that could serve it, sorted
	again     bool     // it is the same request's next
}

func (s *search) solvable() bool {
	s.got = make([][]assignment.Grant, len(s.req.Containers))
	for config := range s.unique { // they do not meet
		var ones []one
		for i, c := range s.req.Containers {
			for _, r := range c.Resources {
				var from []string
				for name, in := range s.instances {
					if in.configuration == config && (r.Name == name || r.Name == config) {
						from = append(from, name)
					}
				}
				slices.Sort(from)
				for n := range r.Count {
					if len(from) > 0 {
						ones = append(ones, one{i, r.Name, from, n > 0})
					}
				}
			}
		}
		if !s.solve(ones, 0) {
			return false
		}
	}
	return true
}

// solve gives the first one a slot in each possible way, and the others theirs. Of
// one request, a slot never comes from an Instance before that of the slot before.
func (s *search) solve(ones []one, from int) bool {
	if len(ones) == 0 {
		return true
	}
	o := ones[0]
	if !o.again {
		from = 0
	}
	for at := from; at < len(o.from); at++ {
		fresh := false // the slots that no container has yet are all the same
		for i := range s.instances[o.from[at]].capacity {
			g := assignment.Grant{Resource: o.resource, Slot: slot.Name{Instance: o.from[at], Index: i}}
			if s.against(s.got, o.container, g) != "" || fresh && !s.had(g.Slot) {
				continue
			}
			fresh = fresh || !s.had(g.Slot)
			s.got[o.container] = append(s.got[o.container], g)
			if s.solve(ones[1:], at) {
				return true
			}
			s.got[o.container] = s.got[o.container][:len(s.got[o.container])-1]
		}
	}
	return false
}

func (s *search) had(name slot.Name) bool {
	return slices.ContainsFunc(s.got, func(grants []assignment.Grant) bool {
		return slices.ContainsFunc(grants, func(g assignment.Grant) bool { return g.Slot == name })
	})
}

func drawPriority(t *rapid.T) int32 { return int32(rapid.IntRange(0, 2).Draw(t, "priority")) }

func drawRole(t *rapid.T) Role {
	return rapid.SampledFrom([]Role{App, App, Init, Sidecar}).Draw(t, "role")
}

func drawRequest(t *rapid.T, pod Pod) *Request {
	req := &Request{Pod: pod, Containers: rapid.SliceOfN(rapid.Custom(drawContainer), 1, 3).Draw(t, "containers")}
	for i := range req.Containers {
		req.Containers[i].Name = fmt.Sprint("c", i)
	}
	return req
}

func drawContainer(t *rapid.T) ContainerRequest {
	c := ContainerRequest{Role: drawRole(t)}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"cam", "gps", full("cam-1"), full("gps-2")}), 0, 2, rapid.ID[string]).Draw(t, "resources") {
		c.Resources = append(c.Resources, ResourceRequest{Name: name, Count: rapid.IntRange(1, 3).Draw(t, "count")})
	}
	return c
}
