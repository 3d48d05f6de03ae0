package schedule

import (
	"slices"
	"strings"
	"sync"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/resource"
)

// migPrefix begins the kinds of MIG slices, unless the node's config renames them.
const migPrefix = "mig-"

// pool is what a node has of a kind.
type pool struct {
	known bool             // the kind is this plugin's
	all   func() []gpu.GPU // that there are
	start []gpu.GPU        // free before the pod
	free  []gpu.GPU        // free beside the running containers
	own   map[string]bool  // what the running containers have, by ID
}

// shared reports whether the node gives out one of them more than once.
func (p *pool) shared() bool {
	return slices.ContainsFunc(p.all(), func(g gpu.GPU) bool { return g.Count > 1 })
}

// pool returns the kind's. GPUs of which somebody uses a slice count as used.
func (p *placing) pool(kind string) *pool {
	if got := p.pools[kind]; got != nil {
		return got
	}
	free := gpu.Free(p.node.Allocatable, p.node.Used, kind)
	all := sync.OnceValue(func() []gpu.GPU { return gpu.Free(p.node.Allocatable, nil, kind) })
	known := len(free) > 0 || kind == gpu.DefaultKind || kind == gpu.DefaultKind+".shared" ||
		strings.HasPrefix(kind, migPrefix) || len(all()) > 0
	p.pools[kind] = &pool{known: known, all: all, start: free, free: free, own: map[string]bool{}}
	if len(free) > 0 && free[0].Slice != "" {
		for r, n := range p.node.Used {
			if name, ok := gpu.ParseName(r); ok && n > 0 && name.Slice != "" {
				p.uses[gpuGroup{gpu: name.GPU}] = true
			}
		}
	}
	return p.pools[kind]
}

// sliced reports whether the kind is one of MIG slices.
func (p *placing) sliced(kind string) bool {
	some := p.pool(kind).start
	if len(some) == 0 { // all are in use
		some = p.pool(kind).all()
	}
	if len(some) > 0 {
		return some[0].Slice != ""
	}
	return strings.HasPrefix(kind, migPrefix)
}

// take takes what was chosen from what is free.
func (p *pool) take(got []gpu.GPU, memory int64) {
	took := map[string]int64{}
	for _, g := range got {
		took[g.ID()], p.own[g.ID()] = g.Count, true
	}
	var left []gpu.GPU
	for _, g := range p.free {
		n := took[g.ID()]
		if g.Count -= n; g.Count > 0 {
			g.Memory -= n * memory
			left = append(left, g)
		}
	}
	p.free = left
}

// enough returns the GPUs that have so many replicas, with that much memory each.
func enough(gpus []gpu.GPU, memory, replicas int64) []gpu.GPU {
	var with []gpu.GPU
	for _, g := range gpus {
		if g.Count >= replicas && g.Memory/replicas >= memory {
			with = append(with, g)
		}
	}
	return with
}

// check looks at what the node has of the kinds that the container asks for. It drops those that another
// plugin may have, and refuses what cannot be given out together.
func (p *placing) check(name string, a *ask) *badRequest {
	a.wants = slices.DeleteFunc(a.wants, func(w want) bool { return w.spec && !p.pool(w.kind).known })
	if len(p.pools) > maxKinds {
		return tooManyKinds(name, len(p.pools))
	}
	for _, w := range a.wants {
		r, n := gpu.KindResource(w.kind), int64(w.count)
		if first := a.wants[0]; p.sliced(w.kind) != p.sliced(first.kind) {
			return bad(name, r, n, "%s and %s: CUDA uses either whole GPUs or MIG slices: ask for one of them, "+
				"or in two containers", gpu.KindResource(first.kind), r)
		}
		if n > 1 && p.node.Allocatable[gpu.FailAboveOne(w.kind)] > 0 {
			return bad(name, r, n, "%d of %s, of which a container gets one (failRequestsGreaterThanOne)", n, r)
		}
	}
	return p.checkNamed(name, a)
}

// checkNamed looks at a container whose GPUs the group scheduler is to place, which
// may give two labels one GPU. Where that must not be, we choose, or refuse.
func (p *placing) checkNamed(name string, a *ask) *badRequest {
	labels := 0
	for _, w := range a.wants {
		labels += w.labels
	}
	for _, w := range a.wants {
		if !a.named || !p.pool(w.kind).shared() {
			continue
		}
		if labels == 0 {
			a.named = false
		} else if !a.sameGPU && w.labels+w.count-w.named > 1 {
			r := gpu.KindResource(w.kind)
			return bad(name, r, int64(w.count), "groups of %s that its requests name can be one GPU: "+
				"ask for a number of %s instead, or set %s to 1", r, r, gpu.ReplicasSameGPU)
		}
	}
	return nil
}

// short is the reason of a node that has too few GPUs for the container.
func (p *placing) short(c *asking, w want) devicescheduler.PredicateFailureReason {
	name := gpu.KindResource(w.kind)
	if c.memory > 0 {
		if name = gpu.Memory; w.kind != gpu.DefaultKind {
			name += " of " + gpu.KindResource(w.kind)
		}
	}
	count := func(g gpu.GPU) int64 { return g.Count }
	switch {
	case w.count == 1 || !p.pool(w.kind).shared():
	case c.sameGPU:
		name += " of one GPU"
	default:
		name += " of different GPUs"
		count = func(gpu.GPU) int64 { return 1 }
	}
	var all, free int64
	for _, g := range enough(p.pool(w.kind).all(), c.memory, 1) {
		all += count(g)
	}
	for _, g := range enough(p.pool(w.kind).start, c.memory, 1) {
		free += count(g)
	}
	return resource.NewInsufficientResourceError(name, int64(w.count), all-free, all)
}
