package gpu

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// What pods ask for, and in which words.
const (
	// Resource is whole GPUs that are not shared: in a container's resources.limits, or in its requests of
	// the KubeDevice/DeviceInfo annotation. See KindResource for the others.
	Resource types.ResourceName = "nvidia.com/gpu"
	// Topology, in the annotation's requests of a container or of the pod, is 1 for GPUs that are connected
	// best and 0 for any GPUs, or for those groups that the container's requests name.
	Topology types.ResourceName = "gpu/gpu-generate-topology"
	// Memory, in the annotation's requests of a container or of the pod, is how
	// many bytes each of the GPUs has at least.
	Memory types.ResourceName = "gpu/memory"
	// ReplicasPack, in the annotation's requests of a container or of the pod, is 1
	// for the shared GPUs of which the fewest replicas are free, and else 0.
	ReplicasPack types.ResourceName = "gpu/replicas-pack"
	// ReplicasSameGPU, likewise, is 1 for a container's replicas of a kind on one
	// GPU, and 0 for each on another.
	ReplicasSameGPU types.ResourceName = "gpu/replicas-same-gpu"
)

// DefaultKind is the kind of whole GPUs that are not shared and, with the MIG strategy single, of slices.
const DefaultKind = "gpu"

const domain = "nvidia.com/"

// KindResource returns the resource of a kind: "nvidia.com/gpu.shared" for "gpu.shared".
func KindResource(kind string) types.ResourceName { return types.ResourceName(domain + kind) }

// Kind returns the kind of a resource: "gpu.shared" for "nvidia.com/gpu.shared". It is false for what cannot
// be a resource, or would have the same leaves as another kind.
func Kind(name types.ResourceName) (kind string, ok bool) {
	kind, ok = strings.CutPrefix(string(name), domain)
	if kind == DefaultKind || !ok {
		return kind, ok
	}
	if kind == Cards || kind == Bytes || resource.IsEnumResource(name) {
		return "", false
	}
	return kind, len(content.IsLabelKey(string(name))) == 0
}

// Leaf returns the leaf of a kind: of whole GPUs KubeGPU's, else the kind.
func Leaf(kind string) string {
	if kind == DefaultKind || kind == "" {
		return Cards
	}
	return kind
}

// LeafKind is the reverse of Leaf. It is false for what is no kind's, as Bytes.
func LeafKind(leaf string) (kind string, ok bool) {
	if leaf == Cards {
		return DefaultKind, true
	}
	kind, ok = Kind(KindResource(leaf))
	return kind, ok && kind != DefaultKind
}

// FailAboveOne returns what a node has in its resources, as 1, if no container may
// have more than one of the kind: failRequestsGreaterThanOne of the node's config.
func FailAboveOne(kind string) types.ResourceName {
	return types.ResourceName("gpu/fail-above-one/" + kind)
}

// The stages of the hierarchy, from the outermost, and a GPU's leaves.
const (
	NodeStage   = "gpugrp1"
	CliqueStage = "gpugrp0"
	Stage       = "gpu"
	SliceStage  = "mig"

	Cards  = "cards"
	Bytes  = "memory"
	prefix = types.DeviceGroupPrefix + "/"
)

// Name is the name of a leaf of a GPU or of one of its MIG slices. On a node the indexes are its groups and
// UUIDs; in a request they are labels that say what belongs together.
type Name struct {
	Node, Clique, GPU string
	Slice             string // "" for a whole GPU
	Leaf              string
}

// ID returns the UUID of what a container is given: the slice's, else the GPU's.
func (n Name) ID() string { return cmp.Or(n.Slice, n.GPU) }

// Resource returns the group resource.
func (n Name) Resource() types.ResourceName {
	gpu := prefix + NodeStage + "/" + n.Node + "/" + CliqueStage + "/" + n.Clique + "/" + Stage + "/" + n.GPU + "/"
	if n.Slice != "" {
		gpu += SliceStage + "/" + n.Slice + "/"
	}
	return types.ResourceName(gpu + n.Leaf)
}

// ParseName reads a leaf of a GPU in two levels of groups.
func ParseName(leaf types.ResourceName) (Name, bool) {
	rest, ok := strings.CutPrefix(string(leaf), prefix)
	if !ok {
		return Name{}, false
	}
	words := strings.Split(rest, "/")
	if len(words) < 7 || words[0] != NodeStage || words[2] != CliqueStage || words[4] != Stage {
		return Name{}, false
	}
	name := Name{Node: words[1], Clique: words[3], GPU: words[5], Leaf: words[6]}
	if len(words) == 9 && words[6] == SliceStage {
		name.Slice, name.Leaf = words[7], words[8]
		return name, name.Slice != ""
	}
	return name, len(words) == 7
}

// GPU is a GPU of a node, or a MIG slice of it.
type GPU struct {
	UUID         string
	Slice        string // the slice's UUID; "" for a whole GPU
	Kind         string // see KindResource; "" is DefaultKind
	Node, Clique string // the indexes of its groups
	Memory       int64  // bytes; ≥ 0
	Count        int64  // how many containers can have it; more than 1 if it is shared; 0 is 1
}

// ID is that of its names.
func (g GPU) ID() string { return cmp.Or(g.Slice, g.UUID) }

// Leaf returns the name of one of the GPU's leaves.
func (g GPU) Leaf(leaf string) types.ResourceName {
	return Name{Node: g.Node, Clique: g.Clique, GPU: g.UUID, Slice: g.Slice, Leaf: leaf}.Resource()
}

// Write adds the GPUs to a node's resources.
func Write(list types.ResourceList, gpus []GPU) {
	for _, g := range gpus {
		list[g.Leaf(Leaf(g.Kind))] = max(g.Count, 1)
		list[g.Leaf(Bytes)] = g.Memory
	}
}

// Max is how many GPUs or slices of one kind of a node are looked at. It bounds
// what a node's annotation, which anybody may have written, can cost.
const Max = 128

// maxCount is above any number of replicas, so that their sums do not overflow.
const maxCount = 1 << 30

// Free returns the GPUs or slices of a kind that can be given out: Count is how often, Memory what nobody
// uses of it. They are sorted by their groups and UUIDs, and at most Max.
func Free(allocatable, used types.ResourceList, kind string) []GPU {
	var free []GPU
	leaf := Leaf(kind)
	for name, n := range allocatable {
		parsed, ok := ParseName(name)
		if n -= max(used[name], 0); !ok || parsed.Leaf != leaf || n < 1 {
			continue
		}
		g := GPU{UUID: parsed.GPU, Slice: parsed.Slice, Kind: kind, Node: parsed.Node, Clique: parsed.Clique,
			Count: min(n, maxCount)}
		bytes := g.Leaf(Bytes)
		g.Memory = max(allocatable[bytes]-max(used[bytes], 0), 0)
		free = append(free, g)
	}
	slices.SortFunc(free, compare)
	return free[:min(len(free), Max)]
}

func compare(a, b GPU) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Clique, b.Clique),
		cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.Slice, b.Slice))
}
