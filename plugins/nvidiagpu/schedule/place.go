package schedule

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// asking is a container that asks for GPUs.
type asking struct {
	ask
	name string
	info types.ContainerInfo
}

// placing is the placing of a pod on a node.
type placing struct {
	node  *types.NodeInfo
	pools map[string]*pool // by kind
	uses  map[gpuGroup]bool
	// quality has, for each container that we chose for, 1 over its cliques.
	quality []float64
}

// place writes to the pod's containers which GPUs of the node they get, or what
// the group scheduler is to find for them. It returns how well connected the
// GPUs are that it chose: from 0 to 1, 1 if each container's are in one clique.
//
// Containers that need the most memory choose first, then those that need the
// most GPUs, so that who can do with any does not stand in the way. Init
// containers run before the others, one at a time, and use their GPUs first.
func place(node *types.NodeInfo, pod *types.PodInfo) (connected float64, reason devicescheduler.PredicateFailureReason) {
	p := placing{node: node, pools: map[string]*pool{}, uses: map[gpuGroup]bool{}}
	for _, init := range []bool{false, true} {
		containers := pod.RunningContainers
		if init {
			containers = pod.InitContainers
		}
		asking, bad := p.asks(containers, pod.Requests)
		if bad != nil {
			return 0, bad
		}
		for _, c := range asking {
			if c.named {
				c.info.DevRequests = p.translate(c.ask, c.info.DevRequests)
			} else if reason := p.choose(&c, init); reason != nil {
				return 0, reason
			}
			containers[c.name] = c.info
		}
	}
	for _, q := range p.quality {
		connected += q / float64(len(p.quality))
	}
	return connected, nil
}

// choose chooses the container's GPUs, if there are enough. An init container gets those of the running
// containers first.
func (p *placing) choose(c *asking, init bool) devicescheduler.PredicateFailureReason {
	uses := p.uses
	if init {
		uses = maps.Clone(uses)
	}
	used := func(g gpuGroup) bool { return uses[g] }
	var given []gpu.GPU
	for _, w := range c.wants {
		pool := p.pool(w.kind)
		n, each := w.count, int64(1) // GPUs, and replicas of each
		if c.sameGPU && n > 1 && pool.shared() {
			n, each = 1, int64(n)
		}
		var own, free []gpu.GPU
		if !init {
			free = enough(pool.free, c.memory, each)
		} else {
			for _, g := range enough(pool.start, c.memory, each) {
				if pool.own[g.ID()] {
					own = append(own, g)
				} else {
					free = append(free, g)
				}
			}
		}
		got := Choose(own, min(n, len(own)), c.pack, used)
		note(uses, got)
		if more := n - len(got); more > 0 {
			rest := Choose(free, more, c.pack, used)
			if rest == nil {
				return p.short(c, w)
			}
			got = append(got, rest...)
		}
		note(uses, got)
		for i := range got {
			got[i].Count = each
		}
		if !init {
			pool.take(got, c.memory)
		}
		given = append(given, got...)
	}
	p.quality = append(p.quality, note(uses, given))
	c.give(given)
	return nil
}

// asks returns the containers that ask for GPUs, in the order in which they choose.
func (p *placing) asks(containers map[string]types.ContainerInfo, pod types.ResourceList) ([]asking, *badRequest) {
	var all []asking
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		c := containers[name]
		a, bad := read(name, &c, pod)
		if bad == nil {
			bad = p.check(name, &a)
		}
		if bad != nil {
			return nil, bad
		}
		if len(a.wants) > 0 {
			all = append(all, asking{a, name, c})
		}
	}
	slices.SortStableFunc(all, func(a, b asking) int {
		return cmp.Or(cmp.Compare(b.memory, a.memory), cmp.Compare(b.count(), a.count()))
	})
	return all, nil
}

// give writes that the container gets the GPUs: a request of each, in the same
// groups as they are, and where it is taken from.
func (c *asking) give(gpus []gpu.GPU) {
	requests, from := types.ResourceList{}, types.ResourceLocation{}
	for r, n := range c.info.DevRequests {
		if _, _, ok := label(r); !ok {
			requests[r] = n
		}
	}
	maps.Copy(from, c.info.AllocateFrom)
	nodes, cliques := map[gpuGroup]string{}, map[gpuGroup]string{}
	uuids, slices := map[string]string{}, map[string]string{}
	for _, g := range gpus {
		want := gpu.GPU{
			Node:   ordinal(nodes, nodeOf(g)),
			Clique: ordinal(cliques, cliqueOf(g)),
			UUID:   ordinal(uuids, g.UUID),
		}
		if g.Slice != "" {
			want.Slice = ordinal(slices, g.Slice)
		}
		leaf := gpu.Leaf(g.Kind)
		requests[want.Leaf(leaf)], from[want.Leaf(leaf)] = g.Count, g.Leaf(leaf)
		if c.memory > 0 {
			requests[want.Leaf(gpu.Bytes)], from[want.Leaf(gpu.Bytes)] = g.Count*c.memory, g.Leaf(gpu.Bytes)
		}
	}
	c.info.DevRequests, c.info.AllocateFrom = requests, from
}

// ordinal numbers keys in the order in which they come.
func ordinal[K comparable](seen map[K]string, key K) string {
	if _, ok := seen[key]; !ok {
		seen[key] = strconv.Itoa(len(seen))
	}
	return seen[key]
}

// note adds the groups of the GPUs to those that are used, and returns 1 over the number of their cliques.
func note(uses map[gpuGroup]bool, gpus []gpu.GPU) float64 {
	cliques := map[gpuGroup]bool{}
	for _, g := range gpus {
		cliques[cliqueOf(g)] = true
		uses[cliqueOf(g)], uses[nodeOf(g)] = true, true
		if g.Slice != "" {
			uses[slicesOf(g)] = true
		}
	}
	return 1 / float64(max(len(cliques), 1))
}
