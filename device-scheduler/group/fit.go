package group

import (
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Placement is what a pod gets on a node.
type Placement struct {
	// Score is from 0 to 1, comparable between nodes for one pod: the fuller
	// the node will be, the higher. 0 if the pod has no group requests.
	Score float64

	node       *Tree
	containers []placed
}

// placed is one part of a container's placement.
type placed struct {
	part
	from []int // the node's leaf, by leaf of want
}

// part is what a container asks for that has a place already, or that has none.
type part struct {
	name string
	init bool
	want *request
	has  types.ResourceLocation // nil if it has no place yet
	last bool                   // the container has no part after it
}

// parts returns what the containers ask for in the order in which it is placed:
// what has a place before what could take it. Init containers run one at a time,
// so that each stands for itself.
func parts(containers map[string]types.ContainerInfo, init bool) []part {
	var fixed, all []part
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		c := containers[name]
		open := part{name: name, init: init, want: newRequest(&c, c.DevRequests), last: true}
		if hasGroup(c.AllocateFrom) {
			placed, rest := split(&c)
			open.want = newRequest(&c, rest)
			p := part{name: name, init: init, want: newRequest(&c, placed), has: c.AllocateFrom}
			p.last = !init || len(open.want.leaves) == 0
			switch {
			case len(p.want.leaves) == 0:
			case init:
				all = append(all, p)
			default:
				fixed = append(fixed, p)
			}
		}
		if len(open.want.leaves) > 0 {
			all = append(all, open)
		}
	}
	return append(fixed, all...)
}

// split parts what the container asks for by whether it has a place.
func split(c *types.ContainerInfo) (placed, open types.ResourceList) {
	placed, open = types.ResourceList{}, types.ResourceList{}
	for want, n := range c.DevRequests {
		if _, ok := c.AllocateFrom[want]; ok {
			placed[want] = n
		} else {
			open[want] = n
		}
	}
	return placed, open
}

// request is what a container asks for.
type request struct {
	tree
	scorers []int32 // by leaf; -1 means the node's
}

// newRequest parses some of the container's requests.
func newRequest(c *types.ContainerInfo, some types.ResourceList) *request {
	r := &request{tree: parse(some)}
	r.scorers = make([]int32, len(r.leaves))
	for i, l := range r.leaves {
		r.scorers[i] = -1
		if number, ok := c.Scorer[l.name]; ok && number >= resource.DefaultScorer && number <= resource.AlwaysFoundScorer {
			r.scorers[i] = resource.Scorer(l.name, number)
		}
	}
	return r
}

// Fit places the pod's DevRequests on the node, of which used is held already.
// It returns nil and the reasons if that is not possible. What has a place in a
// container's AllocateFrom keeps it: a plugin may have chosen it, and it is only
// checked, counted and scored. The pod is not changed; see Placement.Fill.
//
// The time is proportional to the leaves asked for, times those of the node,
// times the levels, at the most.
func (t *Tree) Fit(used types.ResourceList, pod *types.PodInfo) (*Placement, []devicescheduler.PredicateFailureReason) {
	if reasons := invalid(pod); len(reasons) > 0 {
		return nil, reasons
	}
	f := &fitting{alone: true}
	p, failed := f.pod(t, used, pod)
	if p == nil && f.init {
		f = &fitting{}
		p, failed = f.pod(t, used, pod)
	}
	if p == nil {
		return nil, f.reasons(failed, t.never(used, pod))
	}
	return p, nil
}

// never reports whether the pod, which does not fit, would not fit either if nothing of the node were in
// use.
func (t *Tree) never(used types.ResourceList, pod *types.PodInfo) bool {
	if len(used) == 0 {
		return true
	}
	for _, alone := range []bool{true, false} {
		if p, _ := (&fitting{alone: alone}).pod(t, nil, pod); p != nil {
			return false
		}
	}
	return true
}

// Fill writes the placement to the AllocateFrom of the pod that it was made
// for. Entries that are not group resources stay.
func (p *Placement) Fill(pod *types.PodInfo) {
	for _, c := range p.containers {
		containers := pod.RunningContainers
		if c.init {
			containers = pod.InitContainers
		}
		info := containers[c.name]
		to := make(types.ResourceLocation, len(c.from)+len(info.AllocateFrom))
		for name, from := range info.AllocateFrom {
			if _, asked := info.DevRequests[name]; asked || resource.PrecheckedResource(name) {
				to[name] = from
			}
		}
		for i, from := range c.from {
			to[c.want.leaves[i].name] = p.node.leaves[from].name
		}
		info.AllocateFrom = to
		containers[c.name] = info
	}
}

// fitting is one attempt to place a pod.
type fitting struct {
	state
	// alone says that groups of an init container do not see, while they are
	// placed, what the container's other groups took. Only afterwards they are
	// counted together. That is how KubeDevice places, and so it comes first: it
	// can give one device twice and then find no place, but where it finds one,
	// that is the one to take.
	alone bool
	// usedLocations are those that some attempt for this pod found best, by id.
	usedLocations []bool

	// The container that is being placed:
	want   *request
	init   bool
	from   []int     // what it got so far
	best   []int     // stack of the best of each location loop that is under way
	failed *location // the outermost part of want that has no place
}

// pod places the pod's containers, or returns the name of the one that it could
// not place.
func (f *fitting) pod(node *Tree, used types.ResourceList, pod *types.PodInfo) (p *Placement, failed string) {
	f.state, f.usedLocations = newState(node, used), make([]bool, node.locations)
	p = &Placement{node: node}
	for _, f.init = range []bool{false, true} {
		containers := pod.RunningContainers
		if f.init {
			containers = pod.InitContainers
		}
		for _, part := range parts(containers, f.init) {
			f.want, f.from = part.want, make([]int, len(part.want.leaves))
			if !f.part(part.has) {
				return nil, part.name
			}
			if !f.init {
				p.Score = f.mean(0, len(node.leaves))
			}
			p.containers = append(p.containers, placed{part, f.from})
			if part.last {
				f.nextContainer()
			}
		}
	}
	return p, ""
}

// part places what a container asks for, or checks the places that it has.
func (f *fitting) part(has types.ResourceLocation) bool {
	if has == nil {
		_, ok := f.placeAt(&f.want.root, &f.node.root)
		return ok
	}
	for i, l := range f.want.leaves {
		from, ok := f.node.byName[has[l.name]]
		if !ok || !f.take(from, l.count, f.init) {
			return false
		}
		f.from[i] = from
	}
	return true
}

func hasGroup(has types.ResourceLocation) bool {
	for name := range has {
		if resource.IsGroupResourceName(name) {
			return true
		}
	}
	return false
}

// place gives the part of the request the best of the locations.
func (f *fitting) place(want *location, locations []location) bool {
	var best *location
	bestScore, bestUsed := 0.0, false
	start := len(f.log)
	saved := len(f.best)
	f.best = append(f.best, f.from[want.lo:want.hi]...)
	for i := range locations {
		at := &locations[i]
		score, ok := f.placeAt(want, at)
		// Used goes before the score, but once there is a used one, others do not
		// compete.
		used := f.usedLocations[at.id]
		if ok && (used && !bestUsed || used == bestUsed && score >= bestScore) {
			best, bestScore, bestUsed = at, score, used
			copy(f.best[saved:], f.from[want.lo:want.hi])
		}
		f.undo(start)
	}
	if best != nil {
		copy(f.from[want.lo:want.hi], f.best[saved:])
		f.takeAll(want)
		f.usedLocations[best.id] = true
	}
	f.best = f.best[:saved]
	return best != nil
}

// placeAt takes what the part of the request needs at the location, and rates
// the location with that taken.
//
// After something is missing it still places the groups, except at the root:
// what is best within a location counts as used even if the location is not
// taken, and that decides later ties as it does in KubeDevice.
func (f *fitting) placeAt(want, at *location) (score float64, ok bool) {
	ok = true
	start := len(f.log)
	for i := want.lo; i < want.own; i++ {
		l := &f.want.leaves[i]
		from := f.node.find(at, l.key)
		if from < 0 || !f.allows(i, from) || !f.take(from, l.count, f.init) {
			ok = false
			continue
		}
		f.from[i] = from
	}
	root := want == &f.want.root
	if root && !ok {
		return 0, false
	}
	for _, g := range want.groups {
		locations := at.members(g.name)
		for i := range g.locations {
			if !f.place(&g.locations[i], locations) {
				ok = false
				if root {
					f.failed = &g.locations[i]
					return 0, false
				}
			}
		}
	}
	if ok && f.init && f.alone {
		f.undo(start)
		ok = f.takeAll(want)
	}
	if !ok || root {
		return 0, ok
	}
	return f.mean(at.lo, at.hi), true
}

// takeAll takes the places that the part of the request has in from.
func (f *fitting) takeAll(want *location) bool {
	ok := true
	for i := want.lo; i < want.hi && ok; i++ {
		ok = f.take(f.from[i], f.want.leaves[i].count, f.init)
	}
	if f.alone {
		for i := want.lo; i < want.hi; i++ {
			f.leaves[f.from[i]].container = 0
		}
	}
	return ok
}

// allows asks the request's own scorer, if it has one, besides the node's. It
// does not count: in KubeDevice too the node's scorer has the last word.
func (f *fitting) allows(want, from int) bool {
	scorer := f.want.scorers[want]
	if scorer < 0 {
		return true
	}
	_, ok := take(scorer, f.node.leaves[from].count, f.leaves[from].held, f.want.leaves[want].count, f.init)
	return ok
}
