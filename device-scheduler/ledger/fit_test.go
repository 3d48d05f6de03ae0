package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestFitIsComplete compares Fit with an exhaustive search: it finds slots exactly
// when there are any, for containers of all roles that ask for two Configurations
// or for Instances by name, whatever uniqueness each Configuration demands and
// which slots others hold.
func TestFitIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy")
		l := New()
		instances, held := map[string]*instance{}, map[slot.Name]bool{}
		unique, onNode := map[string]akriv0.UniqueScope{}, map[string]bool{}
		for _, config := range []string{"c", "d"} {
			configuration := configurationOf(config, drawUnique(t))
			configuration.Spec.Capacity = 3
			unique[config] = configuration.Spec.Unique()
			l.SetConfiguration(configuration)
			for i := range rapid.IntRange(1, 4).Draw(t, "Instances") {
				name := fmt.Sprint(config, "-", i)
				in := &instance{name: full(name), configuration: config, capacity: rapid.IntRange(1, 3).Draw(t, "capacity")}
				share(l, name, "a")
				occupy(l, name, "a", in.capacity, 3)
				instances[in.name] = in
				if resource := rapid.SampledFrom([]string{"", "", "", config, in.name}).Draw(t, "held as"); resource != "" {
					s := slot.Name{Instance: in.name}
					l.Observe(Pod{UID: in.name}, "a", Assignment{"main": {{Resource: resource, Slot: s}}})
					held[s], onNode[in.name] = true, resource == config
				}
			}
		}
		req := &Request{}
		for i := range rapid.SampledFrom([]int{1, 2, 3, 3, 6}).Draw(t, "containers") {
			c := ContainerRequest{Name: fmt.Sprint("c", i), Role: drawRole(t)}
			for _, config := range []string{"c", "d"} {
				if n := rapid.IntRange(0, 3).Draw(t, "needs"); n > 0 {
					c.Resources = append(c.Resources, ResourceRequest{Name: config, Count: n})
				}
				if named := full(fmt.Sprint(config, "-", rapid.IntRange(0, 7).Draw(t, "named"))); instances[named] != nil {
					c.Resources = append(c.Resources, ResourceRequest{Name: named, Count: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "count")})
				}
			}
			req.Containers = append(req.Containers, c)
		}
		slices.SortStableFunc(req.Containers, func(a, b ContainerRequest) int { // app containers come last
			return cmp.Compare(min(b.Role, Init), min(a.Role, Init))
		})
		s := search{rules: rules{req: req, instances: instances, unique: unique, onNode: onNode, taken: func(s slot.Name) string {
			if held[s] {
				return "by another pod"
			}
			return ""
		}}}
		a, shortfall := l.Draft(strategy, req.Pod).Fit("a", req)
		if shortfall == nil {
			s.check(t, a)
		} else if len(req.Containers) <= 3 && s.solvable() { // to try all ways of more takes too long
			t.Fatalf("%s; but for %+v there are %v", shortfall, req, s.got)
		}
	})
}

// TestSearchBacktracks fits pods in which containers of all roles have some devices by name and
// need others, so that the first choice often fails. What they get is right, and they get it
// whenever they can.
func TestSearchBacktracks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New()
		configuration := configurationOf("c", akriv0.ConfigurationSpec{Capacity: 5})
		configuration.Spec.UniqueScope = rapid.SampledFrom([]akriv0.UniqueScope{akriv0.UniquePerContainer, akriv0.UniquePerNode}).Draw(t, "scope")
		l.SetConfiguration(configuration)
		instances := map[string]*instance{}
		for i := range rapid.IntRange(3, 5).Draw(t, "Instances") {
			name := fmt.Sprint("c-", i)
			in := &instance{name: full(name), configuration: "c", capacity: rapid.IntRange(1, 5).Draw(t, "capacity")}
			share(l, name, "a")
			occupy(l, name, "a", in.capacity, 5)
			instances[in.name] = in
		}
		req := &Request{}
		containers := rapid.IntRange(3, 7).Draw(t, "containers")
		earlier := rapid.SampledFrom([][]Role{{Sidecar}, {Init, Sidecar}}).Draw(t, "roles")
		for i := range containers {
			c := ContainerRequest{Name: fmt.Sprint("c", i), Resources: []ResourceRequest{{Name: "c", Count: rapid.IntRange(1, 2).Draw(t, "needs")}}}
			if i < containers-1 {
				c.Role = rapid.SampledFrom(earlier).Draw(t, "role")
			}
			for i := range len(instances) {
				if rapid.IntRange(0, 2).Draw(t, "named") == 0 {
					c.Resources = append(c.Resources, ResourceRequest{Name: full(fmt.Sprint("c-", i)), Count: 1})
				}
			}
			req.Containers = append(req.Containers, c)
		}
		s := search{rules: rules{req: req, instances: instances, unique: map[string]akriv0.UniqueScope{"c": configuration.Spec.Unique()},
			taken: func(slot.Name) string { return "" }}}
		a, shortfall := l.Draft(rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy"), req.Pod).Fit("a", req)
		if shortfall == nil {
			s.check(t, a)
		} else if containers <= 4 && s.solvable() {
			t.Fatalf("%s; but for %+v there are %v", shortfall, req, s.got)
		}
	})
}

// A pod cannot keep the scheduler busy: the search is given up, here after some thousand
// allocations of some ten thousand.
func TestSearchIsBounded(t *testing.T) {
	l, req := unservable()
	allocations := testing.AllocsPerRun(1, func() {
		if _, shortfall := l.Draft(Spread, req.Pod).Fit("a", req); shortfall == nil {
			t.Error("it fits")
		}
	})
	if allocations > 10_000 {
		t.Errorf("%.0f allocations", allocations)
	}
}

// TestRules: the search and the checks of answers stand and fall with these.
func TestRules(t *testing.T) {
	cl, il := assignment.Grant{Resource: "c", Slot: slot.Name{Instance: "c-1"}}, assignment.Grant{Resource: "c-1", Slot: slot.Name{Instance: "c-1"}}
	second := assignment.Grant{Resource: "c", Slot: slot.Name{Instance: "c-1", Index: 1}}
	for name, test := range map[string]struct {
		unique   akriv0.UniqueScope
		roles    []Role // of the containers, of which the first has a slot
		has, get assignment.Grant
		at       int // which container gets the other
		allowed  bool
	}{
		"the same slot, twice in one container":             {"", []Role{App}, cl, cl, 0, false},
		"the same slot, in two containers that run at once": {"", []Role{App, App}, cl, cl, 1, false},
		"the same slot, in a sidecar and after its start":   {"", []Role{Sidecar, Init}, cl, cl, 1, false},
		"the same slot, before a sidecar starts":            {"", []Role{Init, Sidecar}, cl, cl, 1, true},
		"the same slot, in two init containers":             {akriv0.UniquePerPod, []Role{Init, Init}, cl, cl, 1, true},
		"the same slot, at two levels":                      {"", []Role{Init, App}, il, cl, 1, false},
		"slots alone count":                                 {"", []Role{App}, cl, second, 0, true},
		"two of one Instance in a container":                {akriv0.UniquePerContainer, []Role{App}, cl, second, 0, false},
		"two of one Instance in a pod":                      {akriv0.UniquePerContainer, []Role{App, App}, cl, second, 1, true},
		"two of one Instance in a pod, unique in it":        {akriv0.UniquePerPod, []Role{App, App}, cl, second, 1, false},
		"two of one Instance on a node, unique in a pod":    {akriv0.UniquePerPod, []Role{Init, App}, cl, second, 1, false},
		"two of one Instance on a node, unique on it":       {akriv0.UniquePerNode, []Role{App, App}, cl, second, 1, false},
		"one of them by its name":                           {akriv0.UniquePerNode, []Role{App, App}, il, second, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			u := rules{req: &Request{}, unique: map[string]akriv0.UniqueScope{"c": test.unique}, taken: func(slot.Name) string { return "" },
				instances: map[string]*instance{"c-1": {name: "c-1", configuration: "c", capacity: 2}}}
			for _, role := range test.roles {
				u.req.Containers = append(u.req.Containers, ContainerRequest{Role: role})
			}
			if wrong := u.against([][]assignment.Grant{{test.has}}, test.at, test.get); (wrong == "") != test.allowed {
				t.Errorf("against() = %q, want it allowed: %v", wrong, test.allowed)
			}
		})
	}
}
