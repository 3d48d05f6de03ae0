package fakenvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// Layout is a kind of machine.
type Layout struct {
	GPUs int
	// NVLinks returns how many NVLinks connect two GPUs; nil for none. They are
	// as good in both directions.
	NVLinks func(i, j int) int
	// Switch is how many NVLinks each GPU has to NVSwitches.
	Switch int
	// Ancestor is the nearest that two GPUs have in common in the PCIe tree.
	Ancestor func(i, j int) nvml.GpuTopologyLevel
	// Memory returns a GPU's bytes; nil for its model's.
	Memory func(i int) uint64
	// Model returns a mock of a GPU; nil for an A100.
	Model func(i int) *server.Device
	// Slices returns the profiles of a GPU's slices, by NVIDIA's names; nil for one that is not in
	// MIG mode.
	Slices func(i int) []string
}

// nvswitch is the remote end of an NVLink that leads to a switch.
const nvswitch = -1

// nvlinks returns where each of the GPU's NVLinks leads to.
func (l Layout) nvlinks(i int) []int {
	var to []int
	for range l.Switch {
		to = append(to, nvswitch)
	}
	if l.NVLinks != nil {
		for j := range l.GPUs {
			for n := 0; j != i && n < l.NVLinks(min(i, j), max(i, j)); n++ {
				to = append(to, j)
			}
		}
	}
	return to
}

// Tree is an Ancestor for machines with so many GPUs below a PCIe switch and so
// many in a NUMA node.
func Tree(perSwitch, perNode int) func(i, j int) nvml.GpuTopologyLevel {
	return func(i, j int) nvml.GpuTopologyLevel {
		switch {
		case i/perSwitch == j/perSwitch:
			return nvml.TOPOLOGY_SINGLE
		case i/perNode == j/perNode:
			return nvml.TOPOLOGY_NODE
		default:
			return nvml.TOPOLOGY_SYSTEM
		}
	}
}

// Layouts are kinds of machines by name.
var Layouts = map[string]Layout{
	// 8 GPUs, all on NVSwitches.
	"dgx-a100": {GPUs: 8, Switch: 12, Ancestor: Tree(2, 4)},
	// 8 GPUs in a hybrid cube mesh: each half is connected throughout, some pairs
	// twice, and each GPU with its counterpart in the other half.
	"dgx-1": {GPUs: 8, Ancestor: Tree(2, 4), NVLinks: func(i, j int) int {
		switch {
		case j-i == 4:
			return 2
		case i/4 != j/4:
			return 0
		case (i^j)&3 == 3 || (i^j)&3 == 2:
			return 1
		default:
			return 2
		}
	}},
	// 8 GPUs, in each NUMA node four that are connected by NVLink.
	"two-cliques": {GPUs: 8, Ancestor: Tree(4, 4), NVLinks: func(i, j int) int {
		if i/4 == j/4 {
			return 4
		}
		return 0
	}},
	// 8 GPUs without NVLink, two below each PCIe switch.
	"pcie": {GPUs: 8, Ancestor: Tree(2, 4)},
	// 6 GPUs: two pairs with NVLink bridges, and two without, of which each has a
	// NUMA node of its own with one of the pairs. The last has less memory.
	"mixed": {GPUs: 6, Ancestor: func(i, j int) nvml.GpuTopologyLevel {
		if i/3 == j/3 {
			return nvml.TOPOLOGY_HOSTBRIDGE
		}
		return nvml.TOPOLOGY_SYSTEM
	}, NVLinks: func(i, j int) int {
		if i == 0 && j == 1 || i == 3 && j == 4 {
			return 4
		}
		return 0
	}, Memory: func(i int) uint64 {
		if i == 5 {
			return Memory / 2
		}
		return Memory
	}},
	// 8 GPUs of later models, all on NVSwitches.
	"dgx-h100": {GPUs: 8, Switch: 18, Ancestor: Tree(1, 4), Model: dgxh100.NewDevice},
	"dgx-b200": {GPUs: 8, Switch: 18, Ancestor: Tree(1, 4), Model: dgxb200.NewDevice},
	// 2 GPUs that are partitioned alike.
	"mig-alike": {GPUs: 2, Ancestor: Tree(1, 1), Model: dgxh100.NewDevice, Slices: func(int) []string {
		return []string{"3g.40gb", "3g.40gb"}
	}},
	// 4 GPUs: a whole one, two that are partitioned otherwise, and one in MIG mode without slices.
	"mig-mixed": {GPUs: 4, Ancestor: Tree(1, 2), Slices: func(i int) []string {
		return [][]string{nil, {"1g.5gb.me", "1g.5gb", "2g.10gb"}, {"4g.20gb", "3g.20gb"}, {}}[i]
	}},
	// One GPU.
	"one": {GPUs: 1, Ancestor: Tree(1, 1)},
	// No GPU, but a driver.
	"none": {},
}
