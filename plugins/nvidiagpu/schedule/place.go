package schedule

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// asking is a container that asks for GPUs.
type asking struct {
	ask
	name string
	info types.ContainerInfo
}

// placing is the placing of a pod on a node.
type placing struct {
	node *types.NodeInfo
	free []gpu.GPU
	own  []gpu.GPU // the running containers'
	uses map[gpuGroup]bool
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
	p := placing{node: node, free: gpu.Free(node.Allocatable, node.Used, gpu.DefaultKind), uses: map[gpuGroup]bool{}}
	for _, part := range []struct {
		containers map[string]types.ContainerInfo
		choose     func(*asking) bool
	}{{pod.RunningContainers, p.running}, {pod.InitContainers, p.init}} {
		asking, bad := asks(part.containers, pod.Requests)
		if bad != nil {
			return 0, bad
		}
		for _, c := range asking {
			if c.named {
				c.info.DevRequests = c.translate(c.info.DevRequests, node.Allocatable)
			} else if !part.choose(&c) {
				return 0, p.short(c)
			}
			part.containers[c.name] = c.info
		}
	}
	for _, q := range p.quality {
		connected += q / float64(len(p.quality))
	}
	return connected, nil
}

// running chooses a running container's GPUs, if there are enough.
func (p *placing) running(c *asking) bool {
	got := Choose(enough(p.free, c.memory), c.count, func(g gpuGroup) bool { return p.uses[g] })
	if got == nil {
		return false
	}
	p.own, p.free = append(p.own, got...), without(p.free, got)
	p.quality = append(p.quality, note(p.uses, got))
	c.give(got)
	return true
}

// init chooses an init container's GPUs, if there are enough.
func (p *placing) init(c *asking) bool {
	uses := maps.Clone(p.uses)
	own := enough(p.own, c.memory)
	got := Choose(own, min(c.count, len(own)), func(g gpuGroup) bool { return uses[g] })
	note(uses, got)
	if more := c.count - len(got); more > 0 {
		others := Choose(enough(p.free, c.memory), more, func(g gpuGroup) bool { return uses[g] })
		if others == nil {
			return false
		}
		got = append(got, others...)
	}
	p.quality = append(p.quality, note(uses, got))
	c.give(got)
	return true
}

// asks returns the containers that ask for GPUs, in the order in which they
// choose.
func asks(containers map[string]types.ContainerInfo, pod types.ResourceList) ([]asking, *badRequest) {
	var all []asking
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		c := containers[name]
		a, bad := read(name, &c, pod)
		if bad != nil {
			return nil, bad
		}
		if a.count > 0 {
			all = append(all, asking{a, name, c})
		}
	}
	slices.SortStableFunc(all, func(a, b asking) int {
		return cmp.Or(cmp.Compare(b.memory, a.memory), cmp.Compare(b.count, a.count))
	})
	return all, nil
}

// give writes that the container gets the GPUs: a request of each, in the same
// groups as they are, and where it is taken from.
func (c *asking) give(gpus []gpu.GPU) {
	requests, from := types.ResourceList{}, types.ResourceLocation{}
	for r, n := range c.info.DevRequests {
		if _, ok := label(r); !ok {
			requests[r] = n
		}
	}
	maps.Copy(from, c.info.AllocateFrom)
	nodes, cliques := map[string]string{}, map[gpuGroup]string{}
	for i, g := range gpus {
		want := gpu.Name{
			Node:   ordinal(nodes, g.Node),
			Clique: ordinal(cliques, gpuGroup{g.Node, g.Clique}),
			GPU:    strconv.Itoa(i),
		}
		want.Leaf = gpu.Cards
		requests[want.Resource()], from[want.Resource()] = 1, g.Leaf(gpu.Cards)
		if c.memory > 0 {
			want.Leaf = gpu.Bytes
			requests[want.Resource()], from[want.Resource()] = c.memory, g.Leaf(gpu.Bytes)
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

// note adds the groups of the GPUs to those that the pod uses, and returns 1
// over the number of their cliques.
func note(uses map[gpuGroup]bool, gpus []gpu.GPU) float64 {
	cliques := map[gpuGroup]bool{}
	for _, g := range gpus {
		cliques[gpuGroup{g.Node, g.Clique}] = true
		uses[gpuGroup{g.Node, g.Clique}], uses[gpuGroup{node: g.Node}] = true, true
	}
	return 1 / float64(max(len(cliques), 1))
}

// enough returns the GPUs with that much memory.
func enough(gpus []gpu.GPU, memory int64) []gpu.GPU {
	var with []gpu.GPU
	for _, g := range gpus {
		if g.Memory >= memory {
			with = append(with, g)
		}
	}
	return with
}

func without(gpus, taken []gpu.GPU) []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(gpus), func(g gpu.GPU) bool { return slices.Contains(taken, g) })
}

// short is the reason of a node that has too few GPUs for the container.
func (p *placing) short(c asking) devicescheduler.PredicateFailureReason {
	used, all := gpu.Count(p.node.Allocatable, p.node.Used, gpu.DefaultKind)
	name := gpu.Resource
	if c.memory > 0 {
		name = gpu.Memory
		for _, g := range gpu.Free(p.node.Allocatable, nil, gpu.DefaultKind) {
			if g.Memory < c.memory {
				all--
			}
		}
	}
	return resource.NewInsufficientResourceError(name, int64(c.count), used, max(all, 0))
}
