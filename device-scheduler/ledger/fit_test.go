package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestFitIsComplete compares Fit with an exhaustive search: what it finds is right, and it finds
// slots exactly when there are any, for containers of all roles that ask for two Configurations or
// for Instances by name, whatever uniqueness each Configuration demands and which slots others
// hold. Of one Configuration more containers have Instances by name, so that the search's first
// choice often fails.
func TestFitIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// To try all ways of more than most containers takes too long.
		configs, most, containers, capacity := []string{"c", "d"}, 3, []int{1, 2, 3, 3, 6}, 3
		if rapid.Bool().Draw(t, "one Configuration") {
			configs, most, containers, capacity = configs[:1], 4, []int{3, 4, 4, 5, 7}, 5
		}
		l := New()
		instances, held := map[string]*instance{}, map[slot.Name]bool{}
		unique, onNode := map[string]akriv0.UniqueScope{}, map[string]bool{}
		for _, config := range configs {
			configuration := configurationOf(config, drawUnique(t))
			configuration.Spec.Capacity = int32(capacity)
			unique[config] = configuration.Spec.Unique()
			l.SetConfiguration(configuration)
			for i := range rapid.IntRange(2*most-5, most+1).Draw(t, "Instances") {
				name := fmt.Sprint(config, "-", i)
				in := &instance{name: full(name), configuration: config, capacity: rapid.IntRange(1, capacity).Draw(t, "capacity")}
				share(l, name, "a")
				occupy(l, name, "a", in.capacity, capacity)
				instances[in.name] = in
				if resource := rapid.SampledFrom([]string{"", "", "", config, in.name}).Draw(t, "held as"); resource != "" {
					s := slot.Name{Instance: in.name}
					l.Observe(Pod{UID: in.name}, "a", Assignment{"main": {{Resource: resource, Slot: s}}})
					held[s], onNode[in.name] = true, resource == config
				}
			}
		}
		req := &Request{}
		for i := range rapid.SampledFrom(containers).Draw(t, "containers") {
			c := ContainerRequest{Name: fmt.Sprint("c", i), Role: drawRole(t)}
			for _, config := range configs {
				if n := rapid.IntRange(most-3, 6-most).Draw(t, "needs"); n > 0 {
					c.Resources = append(c.Resources, ResourceRequest{Name: config, Count: n})
				}
			}
			for _, name := range slices.Sorted(maps.Keys(instances)) {
				if rapid.IntRange(0, 2*len(configs)).Draw(t, "named") == 0 {
					c.Resources = append(c.Resources, ResourceRequest{Name: name, Count: rapid.SampledFrom([]int{1, 1, 1, len(configs)}).Draw(t, "count")})
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
		a, shortfall := l.Draft(rapid.SampledFrom([]Strategy{Spread, Pack}).Draw(t, "strategy"), req.Pod).Fit("a", req)
		if shortfall == nil {
			s.check(t, a)
		} else if len(req.Containers) <= most && s.solvable() {
			t.Fatalf("%s; but for %+v there are %v", shortfall, req, s.got)
		}
	})
}
