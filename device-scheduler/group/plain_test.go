package group

import (
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// plain states the package's rules on names and copied maps, with no regard to
// cost: what the tree, the log of changes and the kept scores must amount to.
type plain struct {
	node *types.NodeInfo
	used map[string]bool // locations, by prefix
	c    types.ContainerInfo
	init bool
	// alone: see fitting.
	alone bool
}

// plainState is what is in use, and what the container got.
type plainState struct {
	held map[types.ResourceName]held
	from types.ResourceLocation
}

func (s plainState) clone() plainState {
	return plainState{maps.Clone(s.held), maps.Clone(s.from)}
}

// plainFit returns the score and AllocateFrom by container, or false.
func plainFit(node *types.NodeInfo, pod *types.PodInfo) (float64, map[string]types.ResourceLocation, bool) {
	if score, places, ok := plainPod(node, pod, true); ok {
		return score, places, true
	}
	return plainPod(node, pod, false)
}

func plainPod(node *types.NodeInfo, pod *types.PodInfo, alone bool) (float64, map[string]types.ResourceLocation, bool) {
	p := &plain{node: node, used: map[string]bool{}, alone: alone}
	state := plainState{held: map[types.ResourceName]held{}}
	for name, n := range node.Used {
		state.held[name] = held{node: n}
	}
	total, places := 0.0, map[string]types.ResourceLocation{}
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			p.c, state.from = containers[name], types.ResourceLocation{}
			if len(below(p.c.DevRequests, types.DeviceGroupPrefix)) == 0 {
				continue
			}
			score, next, ok := p.placeAt(types.DeviceGroupPrefix, types.DeviceGroupPrefix, state)
			if !ok {
				return 0, nil, false
			}
			if !p.init {
				total = score
			}
			places[name] = next.from
			next.containerDone()
			state = next
		}
		p.init = true
	}
	return total, places, true
}

func (s plainState) containerDone() {
	for leaf, h := range s.held {
		h.container = 0
		s.held[leaf] = h
	}
}

// placeAt places what is requested below the prefix want at the prefix at.
func (p *plain) placeAt(want, at string, state plainState) (float64, plainState, bool) {
	before := state
	state = state.clone()
	ok := true
	for _, req := range own(p.c.DevRequests, want) {
		from := types.ResourceName(at + strings.TrimPrefix(string(req), want))
		capacity, exists := p.node.Allocatable[from]
		if !exists || !p.take(req, from, capacity, state) {
			ok = false
		}
	}
	for _, sub := range locations(p.c.DevRequests, want, "") {
		next, placed := p.place(want+sub, at, sub, state)
		if !placed {
			ok = false
			continue
		}
		state = next
	}
	if ok && p.init && p.alone {
		together := plainState{maps.Clone(before.held), state.from}
		for _, req := range below(p.c.DevRequests, want) {
			from := state.from[req]
			h, fits := take(resource.Scorer(from, p.node.Scorer[from]), p.node.Allocatable[from], together.held[from], p.c.DevRequests[req], true)
			together.held[from] = h
			ok = ok && fits
		}
		together.containerDone()
		state = together
	}
	leaves := below(p.node.Allocatable, at)
	exact := new(big.Float).SetPrec(500)
	for _, leaf := range leaves {
		exact.Add(exact, big.NewFloat(score(resource.Scorer(leaf, p.node.Scorer[leaf]), p.node.Allocatable[leaf], state.held[leaf])))
	}
	sum, _ := exact.Float64()
	return sum / float64(len(leaves)), state, ok
}

func (p *plain) take(req, from types.ResourceName, capacity int64, state plainState) bool {
	n := p.c.DevRequests[req]
	if number, ok := p.c.Scorer[req]; ok && number <= resource.AlwaysFoundScorer {
		if _, ok := take(resource.Scorer(req, number), capacity, state.held[from], n, p.init); !ok {
			return false
		}
	}
	h, ok := take(resource.Scorer(from, p.node.Scorer[from]), capacity, state.held[from], n, p.init)
	if ok {
		state.held[from], state.from[req] = h, from
	}
	return ok
}

// place tries all locations of the group that sub ("/group/index") is of.
func (p *plain) place(want, at, sub string, state plainState) (plainState, bool) {
	group := sub[:strings.LastIndexByte(sub, '/')]
	var best plainState
	bestAt, bestScore := "", 0.0
	for _, index := range locations(p.node.Allocatable, at, group) {
		score, next, ok := p.placeAt(want, at+index, state)
		if !ok {
			continue
		}
		better := score >= bestScore
		if used, bestUsed := p.used[at+index], p.used[bestAt]; used != bestUsed {
			better = used
		}
		if bestAt == "" || better {
			best, bestAt, bestScore = next, at+index, score
		}
	}
	p.used[bestAt] = bestAt != ""
	return best, bestAt != ""
}

// below returns the names of list that begin with prefix, sorted.
func below(list types.ResourceList, prefix string) (names []types.ResourceName) {
	for name := range list {
		if resource.IsGroupResourceName(name) && strings.HasPrefix(string(name), prefix+"/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// own returns those of them that are in no deeper group.
func own(list types.ResourceList, prefix string) []types.ResourceName {
	return slices.DeleteFunc(below(list, prefix), func(name types.ResourceName) bool {
		return strings.Count(string(name[len(prefix):]), "/") > 2
	})
}

// locations returns the "/group/index" below prefix, of one group or of all.
func locations(list types.ResourceList, prefix, group string) (subs []string) {
	for _, name := range below(list, prefix) {
		elements := strings.SplitN(string(name[len(prefix)+1:]), "/", 3)
		if len(elements) == 3 && (group == "" || group == "/"+elements[0]) {
			subs = append(subs, "/"+elements[0]+"/"+elements[1])
		}
	}
	slices.SortFunc(subs, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	return slices.Compact(subs)
}
