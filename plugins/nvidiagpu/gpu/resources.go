package gpu

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types"
)

// What pods ask for, and in which words.
const (
	// Resource is GPUs: in a container's resources.limits, or in its requests of
	// the KubeDevice/DeviceInfo annotation.
	Resource types.ResourceName = "nvidia.com/gpu"
	// Topology, in the annotation's requests of a container or of the pod, is 1
	// for GPUs that are connected best and 0 for any GPUs, or for those groups
	// that the container's requests name.
	Topology types.ResourceName = "gpu/gpu-generate-topology"
	// Memory, in the annotation's requests of a container or of the pod, is how
	// many bytes each of the GPUs has at least.
	Memory types.ResourceName = "gpu/memory"
)

// The stages of the hierarchy, from the outermost, and a GPU's leaves.
const (
	NodeStage   = "gpugrp1"
	CliqueStage = "gpugrp0"
	Stage       = "gpu"

	Cards  = "cards"
	Bytes  = "memory"
	prefix = types.DeviceGroupPrefix + "/"
)

// Name is the name of a GPU's leaf. On a node the indexes are its groups and its
// UUID; in a request they are labels that say what belongs together.
type Name struct {
	Node, Clique, GPU, Leaf string
}

// Resource returns the group resource.
func (n Name) Resource() types.ResourceName {
	return types.ResourceName(prefix + NodeStage + "/" + n.Node + "/" + CliqueStage + "/" + n.Clique + "/" + Stage + "/" + n.GPU + "/" + n.Leaf)
}

// ParseName reads a leaf of a GPU in two levels of groups.
func ParseName(resource types.ResourceName) (Name, bool) {
	rest, ok := strings.CutPrefix(string(resource), prefix)
	if !ok {
		return Name{}, false
	}
	words := strings.Split(rest, "/")
	if len(words) != 7 || words[0] != NodeStage || words[2] != CliqueStage || words[4] != Stage {
		return Name{}, false
	}
	if words[6] != Cards && words[6] != Bytes {
		return Name{}, false
	}
	return Name{Node: words[1], Clique: words[3], GPU: words[5], Leaf: words[6]}, true
}

// GPU is a GPU of a node.
type GPU struct {
	UUID         string
	Node, Clique string // the indexes of its groups
	Memory       int64  // bytes; ≥ 0
}

// Leaf returns the name of one of the GPU's leaves.
func (g GPU) Leaf(leaf string) types.ResourceName {
	return Name{Node: g.Node, Clique: g.Clique, GPU: g.UUID, Leaf: leaf}.Resource()
}

// Write adds the GPUs to a node's resources.
func Write(list types.ResourceList, gpus []GPU) {
	for _, g := range gpus {
		list[g.Leaf(Cards)] = 1
		list[g.Leaf(Bytes)] = g.Memory
	}
}

// Max is how many GPUs of a node are looked at. It bounds what a node's
// annotation, which anybody may have written, can cost.
const Max = 128

// Free returns the GPUs that nobody uses, with the memory that nobody uses,
// sorted by their groups and UUIDs, at most Max.
func Free(allocatable, used types.ResourceList) []GPU {
	var free []GPU
	for resource, n := range allocatable {
		name, ok := ParseName(resource)
		if !ok || name.Leaf != Cards || n-used[resource] < 1 {
			continue
		}
		g := GPU{UUID: name.GPU, Node: name.Node, Clique: name.Clique}
		bytes := g.Leaf(Bytes)
		g.Memory = max(allocatable[bytes]-max(used[bytes], 0), 0)
		free = append(free, g)
	}
	slices.SortFunc(free, compare)
	return free[:min(len(free), Max)]
}

// Count returns how many GPUs are in use, and how many there are.
func Count(allocatable, used types.ResourceList) (inUse, all int64) {
	for resource := range allocatable {
		if name, ok := ParseName(resource); ok && name.Leaf == Cards {
			all++
			if used[resource] > 0 {
				inUse++
			}
		}
	}
	return inUse, all
}

func compare(a, b GPU) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Clique, b.Clique), cmp.Compare(a.UUID, b.UUID))
}
