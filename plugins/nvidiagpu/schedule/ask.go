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
	count  int   // GPUs
	memory int64 // bytes of each, at least
	// named says that its requests name GPUs and their groups, which the group
	// scheduler then places. Otherwise we choose.
	named bool
}

// badRequest is the reason of a pod that fits no node.
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

// Error is GetReason.
func (b *badRequest) Error() string { return b.text }

// read returns what the container asks for. What it does not say itself it takes
// from the requests of the pod as a whole.
func read(name string, c *types.ContainerInfo, pod types.ResourceList) (ask, *badRequest) {
	bad := func(r types.ResourceName, n int64, format string, args ...any) (ask, *badRequest) {
		return ask{}, &badRequest{r, n, fmt.Sprintf("container %q: ", name) + fmt.Sprintf(format, args...)}
	}
	for _, n := range []int64{c.Requests[gpu.Resource], c.KubeRequests[gpu.Resource]} {
		if n < 0 {
			return bad(gpu.Resource, n, "%d of %s: a count cannot be negative", n, gpu.Resource)
		}
	}
	count := max(c.Requests[gpu.Resource], c.KubeRequests[gpu.Resource])
	if count > gpu.Max {
		return bad(gpu.Resource, count, "%d of %s, of which no node can give out more than %d", count, gpu.Resource, gpu.Max)
	}
	memory, _ := requested(c.Requests, pod, gpu.Memory)
	if memory < 0 {
		return bad(gpu.Memory, memory, "%d of %s: it is a number of bytes", memory, gpu.Memory)
	}
	named := labels(c.Requests)
	if len(named) > gpu.Max {
		return bad(gpu.Resource, int64(len(named)), "names %d GPUs, of which no node can give out more than %d", len(named), gpu.Max)
	}
	mode, said := requested(c.Requests, pod, gpu.Topology)
	switch {
	case !said && len(named) == 0:
		mode = 1
	case mode != 0 && mode != 1:
		return bad(gpu.Topology, mode, "%d for %s: it is 0 or 1", mode, gpu.Topology)
	}
	if mode == 1 {
		for l := range named {
			memory = max(memory, c.Requests[types.ResourceName(l+gpu.Bytes)])
		}
	}
	a := ask{count: max(int(count), len(named)), memory: memory, named: mode == 0}
	if _, own := c.Requests[gpu.Memory]; own && a.count == 0 {
		return bad(gpu.Memory, memory, "%s, and no %s", gpu.Memory, gpu.Resource)
	}
	return a, nil
}

// requested returns the container's request, else the pod's, and whether there is
// one.
func requested(container, pod types.ResourceList, r types.ResourceName) (int64, bool) {
	if n, ok := container[r]; ok {
		return n, true
	}
	n, ok := pod[r]
	return n, ok
}

// label returns the name of a GPU's leaf up to the leaf, whatever its groups.
func label(r types.ResourceName) (string, bool) {
	if !resource.IsGroupResourceName(r) {
		return "", false
	}
	before, after, ok := strings.Cut(string(r), "/"+gpu.Stage+"/")
	index, leaf, two := strings.Cut(after, "/")
	if !ok || !two || leaf != gpu.Cards && leaf != gpu.Bytes {
		return "", false
	}
	return before + "/" + gpu.Stage + "/" + index + "/", true
}

// labels returns the labels of the GPUs that the requests name.
func labels(requests types.ResourceList) map[string]bool {
	found := map[string]bool{}
	for r := range requests {
		if l, ok := label(r); ok {
			found[l] = true
		}
	}
	return found
}

// translate writes what the container asks for in names as requests of GPUs in
// two levels of groups. GPUs that it has not named get labels of their own, and
// so do groups that it has not named: nothing asked for them to be together.
func (a ask) translate(requests, node types.ResourceList) types.ResourceList {
	requests = maps.Clone(requests)
	named := labels(requests)
	next := 0
	for l := range named {
		_, index, _ := strings.Cut(strings.TrimSuffix(l, "/"), "/"+gpu.Stage+"/")
		if n, err := strconv.Atoi(index); err == nil && n >= 0 && n < 1<<30 {
			next = max(next, n+1)
		}
	}
	for i := range a.count - len(named) {
		named[fmt.Sprintf("%s/%s/%d/", types.DeviceGroupPrefix, gpu.Stage, next+i)] = true
	}
	for _, l := range slices.Sorted(maps.Keys(named)) {
		if _, ok := requests[types.ResourceName(l+gpu.Cards)]; !ok {
			requests[types.ResourceName(l+gpu.Cards)] = 1
		}
		if _, ok := requests[types.ResourceName(l+gpu.Bytes)]; !ok && a.memory > 0 {
			requests[types.ResourceName(l+gpu.Bytes)] = a.memory
		}
	}
	_, requests = resource.TranslateResource(node, requests, gpu.CliqueStage, gpu.Stage)
	_, requests = resource.TranslateResource(node, requests, gpu.NodeStage, gpu.CliqueStage)
	return requests
}
