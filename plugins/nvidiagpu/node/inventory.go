package node

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	_ "github.com/kubeslot/kubeslot/plugins/nvidiagpu/nvmllink" // so that this can be in a Go plugin
)

// check returns what NVML returned to a call as an error, nil for SUCCESS.
func check(call string, code nvml.Return) error {
	if code == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("NVML: %s: %w", call, code)
}

// none reports whether the error says that the machine has no GPU that NVML
// could know of, rather than that something broke.
func none(err error) bool {
	code, ok := errors.AsType[nvml.Return](err)
	return ok && (code == nvml.ERROR_LIBRARY_NOT_FOUND || code == nvml.ERROR_DRIVER_NOT_LOADED ||
		code == nvml.ERROR_NOT_FOUND)
}

// found is a GPU as NVML has it.
type found struct {
	gpu.GPU
	handle  nvml.Device
	bus     string
	capable bool    // of MIG mode
	mig     bool    // that it is in it: only its slices can be used
	slices  []slice // in NVML's order
}

// find returns the GPU with the UUID, or the one that has the slice with it.
func find(gpus []found, uuid string) (*found, *slice) {
	for i := range gpus {
		if gpus[i].UUID == uuid {
			return &gpus[i], nil
		}
		for j := range gpus[i].slices {
			if gpus[i].slices[j].uuid == uuid {
				return &gpus[i], &gpus[i].slices[j]
			}
		}
	}
	return nil, nil
}

// missing is a GPU or slice that is there and cannot be given out.
type missing struct {
	gpu string // its UUID, or its index if that is not to be had
	why string
}

// read returns the GPUs that work, in NVML's order, which is that of their PCI addresses, and the others. A
// GPU that fails does not take the others with it, nor does a slice.
func read(lib nvml.Interface) ([]found, []missing, error) {
	n, code := lib.DeviceGetCount()
	if err := check("DeviceGetCount", code); err != nil {
		return nil, nil, err
	}
	var gpus []found
	var out []missing
	for i := range n {
		name := fmt.Sprintf("index %d", i)
		handle, code := lib.DeviceGetHandleByIndex(i)
		err := check("DeviceGetHandleByIndex", code)
		var g found
		if err == nil {
			g, err = describe(handle)
		}
		if err == nil && g.mig {
			var broken []missing
			g.slices, broken, err = partition(&g)
			out = append(out, broken...)
		}
		if g.UUID != "" {
			name = g.UUID
		}
		if err != nil {
			out = append(out, missing{name, err.Error()})
			continue
		}
		gpus = append(gpus, g)
	}
	links := connections(gpus)
	nodes, cliques := gpu.Group(len(gpus), func(i, j int) gpu.Link { return links[i][j] })
	for i := range gpus {
		gpus[i].Node, gpus[i].Clique = nodes[i], cliques[i]
	}
	return gpus, out, nil
}

func describe(handle nvml.Device) (found, error) {
	g := found{handle: handle}
	var err error
	if g.UUID, err = uuidOf(handle); err != nil {
		return g, err
	}
	if g.Memory, err = memory(handle); err != nil {
		return g, err
	}
	mode, _, code := handle.GetMigMode()
	g.capable = code == nvml.SUCCESS
	g.mig = g.capable && mode == nvml.DEVICE_MIG_ENABLE
	pci, code := handle.GetPciInfo()
	if err := check("GetPciInfo", code); err != nil {
		return g, err
	}
	g.bus = address(pci)
	return g, nil
}

// memory returns a GPU's or slice's bytes, 0 if it has none of its own. It fails if the GPU is lost.
func memory(handle nvml.Device) (int64, error) {
	info, code := handle.GetMemoryInfo()
	if code == nvml.ERROR_NOT_SUPPORTED {
		return 0, nil // it shares the machine's
	}
	return int64(min(info.Total, 1<<62)), check("GetMemoryInfo", code)
}

func address(pci nvml.PciInfo) string {
	return fmt.Sprintf("%08x:%02x:%02x", pci.Domain, pci.Bus, pci.Device)
}

// connections returns how each two GPUs i < j are connected. What NVML does not
// know, as in a virtual machine, counts as far apart.
func connections(gpus []found) [][]gpu.Link {
	links := make([][]gpu.Link, len(gpus))
	byBus := map[string]int{}
	toSwitch := make([]int, len(gpus))
	for i, g := range gpus {
		links[i] = make([]gpu.Link, len(gpus))
		byBus[g.bus] = i
	}
	for i, g := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			links[i][j].Path = path(g.handle, gpus[j].handle)
		}
		for link := range nvml.NVLINK_MAX_LINKS {
			if state, code := g.handle.GetNvLinkState(link); code != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			if kind, code := g.handle.GetNvLinkRemoteDeviceType(link); code == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
				toSwitch[i]++
				continue
			}
			pci, code := g.handle.GetNvLinkRemotePciInfo(link)
			// Each of the two has the link; it counts once.
			if j, ok := byBus[address(pci)]; code == nvml.SUCCESS && ok && i < j {
				links[i][j].NVLinks++
			}
		}
	}
	// The NVSwitches of a machine are one fabric: they connect all that have links to them.
	for i := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			links[i][j].NVLinks += min(toSwitch[i], toSwitch[j])
		}
	}
	return links
}

func path(a, b nvml.Device) gpu.Path {
	level, code := a.GetTopologyCommonAncestor(b)
	switch {
	case code != nvml.SUCCESS:
		return gpu.AcrossNodes
	case level <= nvml.TOPOLOGY_MULTIPLE:
		return gpu.SameSwitch
	case level <= nvml.TOPOLOGY_NODE:
		return gpu.SameNode
	default:
		return gpu.AcrossNodes
	}
}
