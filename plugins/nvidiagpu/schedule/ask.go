package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// ask is what a container asks for.
type ask struct {
	wants  []want // sorted by kind
	memory int64  // bytes of each, at least
	// named says that its requests name GPUs and their groups, which the group
	// scheduler then places. Otherwise we choose.
	named         bool
	pack, sameGPU bool // see gpu.ReplicasPack, gpu.ReplicasSameGPU
}

// want is what a container asks for of one kind.
type want struct {
	kind  string
	count int // GPUs, slices or replicas
	// named is how many of them its requests name, by so many labels.
	named, labels int
	// spec says that only the container's spec asks for it. It may be a resource of another plugin then.
	spec bool
}

// count returns how many GPUs, slices and replicas the container asks for.
func (a ask) count() (n int) {
	for _, w := range a.wants {
		n += w.count
	}
	return n
}

// maxKinds is how many kinds a pod may ask for: each costs a look through the node's resources.
const maxKinds = 16

// badRequest is the reason of a pod that fits no node, or none of this kind.
type badRequest struct {
	resource types.ResourceName
	count    int64
	text     string
}

// GetReason returns the reason as a sentence.
func (b *badRequest) GetReason() string { return b.text }

// GetInfo returns the resource and what was asked for.
func (b *badRequest) GetInfo() (types.ResourceName, int64, int64, int64) {
	return b.resource, b.count, 0, 0
}

// Never is true: the end of other pods would not help.
func (b *badRequest) Never() bool { return true }

// bad returns the reason that concerns the container.
func bad(container string, r types.ResourceName, n int64, format string, args ...any) *badRequest {
	return &badRequest{r, n, fmt.Sprintf("container %q: ", container) + fmt.Sprintf(format, args...)}
}

func tooManyKinds(container string, n int) *badRequest {
	return bad(container, gpu.Resource, int64(n),
		"its pod asks for %d kinds of GPUs or more, of which it can ask for %d",
		n, maxKinds)
}

// read returns what the container asks for. What it does not say itself it takes
// from the requests of the pod as a whole.
func read(name string, c *types.ContainerInfo, pod types.ResourceList) (ask, *badRequest) {
	named := labels(c.Requests)
	wants, reason := readWants(name, c, named)
	if reason != nil {
		return ask{}, reason
	}
	a := ask{wants: wants}
	a.memory, _ = requested(c.Requests, pod, gpu.Memory)
	if a.memory < 0 {
		return a, bad(name, gpu.Memory, a.memory, "%d of %s: it is a number of bytes", a.memory, gpu.Memory)
	}
	topology, said := requested(c.Requests, pod, gpu.Topology)
	if !said && len(named) == 0 {
		topology = 1
	}
	pack, _ := requested(c.Requests, pod, gpu.ReplicasPack)
	sameGPU, _ := requested(c.Requests, pod, gpu.ReplicasSameGPU)
	for _, setting := range []struct {
		resource types.ResourceName
		n        int64
	}{{gpu.Topology, topology}, {gpu.ReplicasPack, pack}, {gpu.ReplicasSameGPU, sameGPU}} {
		if r, n := setting.resource, setting.n; n != 0 && n != 1 {
			return a, bad(name, r, n, "%d for %s: it is 0 or 1", n, r)
		}
	}
	a.named, a.pack, a.sameGPU = topology == 0, pack == 1, sameGPU == 1
	if !a.named {
		for l := range named {
			a.memory = max(a.memory, c.Requests[types.ResourceName(l+gpu.Bytes)])
		}
	}
	if _, own := c.Requests[gpu.Memory]; own && len(a.wants) == 0 {
		return a, bad(name, gpu.Memory, a.memory, "%s, and no %s", gpu.Memory, gpu.Resource)
	}
	return a, nil
}

// readWants returns what the container asks for of each kind, in numbers and in
// the labels of its requests, which are by kind.
func readWants(name string, c *types.ContainerInfo, labels map[string]string) ([]want, *badRequest) {
	named, count := map[string]int64{}, map[string]int{}
	for l, kind := range labels {
		n := c.Requests[types.ResourceName(l+gpu.Leaf(kind))]
		named[kind] = resource.AddCapped(named[kind], max(n, 1))
		count[kind]++
	}
	kinds := maps.Clone(named)
	for _, list := range []types.ResourceList{c.Requests, c.KubeRequests} {
		for r := range list {
			if kind, ok := gpu.Kind(r); ok {
				kinds[kind] = 0
			}
		}
	}
	if len(kinds) > maxKinds {
		return nil, tooManyKinds(name, len(kinds))
	}
	var wants []want
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r := gpu.KindResource(kind)
		own, spec := c.Requests[r], c.KubeRequests[r]
		if n := min(own, spec); n < 0 {
			return nil, bad(name, r, n, "%d of %s: a count cannot be negative", n, r)
		}
		if n := max(own, spec); n > gpu.Max {
			return nil, bad(name, r, n, "%d of %s, of which no node can give out more than %d", n, r, gpu.Max)
		}
		if n := named[kind]; n > gpu.Max {
			return nil, bad(name, r, n, "names %d GPUs, of which no node can give out more than %d", n, gpu.Max)
		}
		w := want{kind: kind, count: int(max(own, spec, named[kind])), named: int(named[kind]), labels: count[kind]}
		w.spec = own == 0 && w.named == 0
		if w.count > 0 {
			wants = append(wants, w)
		}
	}
	return wants, nil
}

// requested returns the container's request, else the pod's, and whether there is one.
func requested(container, pod types.ResourceList, r types.ResourceName) (int64, bool) {
	if n, ok := container[r]; ok {
		return n, true
	}
	n, ok := pod[r]
	return n, ok
}

// label splits the name of a leaf of a GPU or slice, whatever its groups, before the leaf.
func label(r types.ResourceName) (label, leaf string, ok bool) {
	if !resource.IsGroupResourceName(r) {
		return "", "", false
	}
	_, after, ok := strings.Cut(string(r), "/"+gpu.Stage+"/")
	words := strings.Split(after, "/")
	if !ok || len(words) != 2 && (len(words) != 4 || words[1] != gpu.SliceStage) {
		return "", "", false
	}
	leaf = words[len(words)-1]
	_, kind := gpu.LeafKind(leaf)
	return strings.TrimSuffix(string(r), leaf), leaf, kind || leaf == gpu.Bytes
}

// labels returns the labels of the GPUs and slices that the requests name, and
// the kind of each: the default if they only name its memory.
func labels(requests types.ResourceList) map[string]string {
	found := map[string]string{}
	for r := range requests {
		l, leaf, ok := label(r)
		if !ok {
			continue
		}
		kind, _ := gpu.LeafKind(leaf)
		found[l] = max(found[l], kind)
	}
	for l, kind := range found {
		if kind == "" {
			found[l] = gpu.DefaultKind
		}
	}
	return found
}

// translate writes what the container asks for in names as requests of GPUs in
// two levels of groups. GPUs that it has not named get labels of their own, and
// so do groups that it has not named: nothing asked for them to be together. Of
// what is more than the node has it asks for one too many.
func (p *placing) translate(a ask, requests types.ResourceList) types.ResourceList {
	requests = maps.Clone(requests)
	named := labels(requests)
	next := 0
	for l := range named {
		_, index, _ := strings.Cut(l, "/"+gpu.Stage+"/")
		index, _, _ = strings.Cut(index, "/")
		if n, err := strconv.Atoi(index); err == nil && n >= 0 && n < 1<<30 {
			next = max(next, n+1)
		}
	}
	for _, w := range a.wants {
		most := int64(1)
		for _, g := range p.pool(w.kind).all() {
			most += g.Count
		}
		for range min(int64(w.count-w.named), most) {
			l := fmt.Sprintf("%s/%s/%d/", types.DeviceGroupPrefix, gpu.Stage, next)
			if p.sliced(w.kind) {
				l += gpu.SliceStage + "/0/"
			}
			named[l] = w.kind
			next++
		}
	}
	for _, l := range slices.Sorted(maps.Keys(named)) {
		leaf := types.ResourceName(l + gpu.Leaf(named[l]))
		if _, ok := requests[leaf]; !ok {
			requests[leaf] = 1
		}
		if _, ok := requests[types.ResourceName(l+gpu.Bytes)]; !ok && a.memory > 0 {
			requests[types.ResourceName(l+gpu.Bytes)] = a.memory
		}
	}
	_, requests = resource.TranslateResource(p.node.Allocatable, requests, gpu.CliqueStage, gpu.Stage)
	_, requests = resource.TranslateResource(p.node.Allocatable, requests, gpu.NodeStage, gpu.CliqueStage)
	return requests
}
