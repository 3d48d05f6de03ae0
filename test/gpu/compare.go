package main

import (
	"fmt"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// nvmlGPU is a GPU as go-nvml reads it in this process.
type nvmlGPU struct {
	uuid, bus string
	minor     int
	mig       bool
}

// differences are sentences that each name a GPU and what is different.
type differences []string

func (d *differences) add(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

// compareInventory compares the GPUs that the plugin advertises with those of nvidia-smi. Those in MIG mode are not
// advertised as whole GPUs.
func compareInventory(advertised []gpu.GPU, smi []smiGPU) (d differences) {
	have := map[string]bool{}
	for _, g := range advertised {
		have[g.UUID] = true
	}
	for _, s := range smi {
		if whole := s.MIG != "Enabled"; whole != have[s.UUID] {
			d.add("%s with MIG mode %s: advertised as a whole GPU: %v", s.UUID, s.MIG, have[s.UUID])
		}
		delete(have, s.UUID)
	}
	for uuid := range have {
		d.add("%s is advertised, and nvidia-smi does not have it", uuid)
	}
	return d
}

// compareMemory allows for 1 MiB, since nvidia-smi rounds.
func compareMemory(advertised []gpu.GPU, smi []smiGPU) (d differences) {
	for _, s := range smi {
		for _, g := range advertised {
			if g.UUID != s.UUID || s.Memory == "N/A" && g.Memory == 0 {
				continue
			}
			want, err := mebibytes(s.Memory)
			if err != nil {
				d.add("%s: %v", s.UUID, err)
			} else if got := g.Memory >> 20; max(got-want, want-got) > 1 {
				d.add("%s: %d MiB are advertised, and nvidia-smi says %s", s.UUID, got, s.Memory)
			}
		}
	}
	return d
}

// compareReadings compares what go-nvml reads with what nvidia-smi reads: both ask the same driver, so that a
// difference is one of go-nvml, or of this program's link to it.
func compareReadings(nvml []nvmlGPU, smi []smiGPU) (addresses, minors, modes differences) {
	if len(nvml) != len(smi) {
		addresses.add("NVML has %d GPUs, and nvidia-smi %d", len(nvml), len(smi))
	}
	for i := range min(len(nvml), len(smi)) {
		n, s := nvml[i], smi[i]
		if n.uuid != s.UUID {
			addresses.add("index %d is %s for NVML, and %s for nvidia-smi", i, n.uuid, s.UUID)
			continue
		}
		if !strings.EqualFold(n.bus, s.Bus) {
			addresses.add("%s: NVML says %s, and nvidia-smi %s", s.UUID, n.bus, s.Bus)
		}
		if s.Minor != fmt.Sprint(n.minor) {
			minors.add("%s: NVML says %d, and nvidia-smi %s", s.UUID, n.minor, s.Minor)
		}
		if n.mig != (s.MIG == "Enabled") {
			modes.add("%s: NVML says %v, and nvidia-smi %s", s.UUID, n.mig, s.MIG)
		}
	}
	return addresses, minors, modes
}

// compareGroups compares the groups that the plugin advertises with those of the connections that nvidia-smi says. It
// compares which GPUs are together; how the groups are numbered is the plugin's affair.
func compareGroups(advertised []gpu.GPU, smi []smiGPU, links [][]gpu.Link) (d differences) {
	if len(smi) != len(links) {
		d.add("nvidia-smi -q has %d GPUs, and topo %d", len(smi), len(links))
		return d
	}
	var gpus []gpu.GPU
	var index []int // in links
	for i, s := range smi {
		for _, g := range advertised {
			if g.UUID == s.UUID {
				gpus, index = append(gpus, g), append(index, i)
				break
			}
		}
	}
	nodes, cliques := gpu.Group(len(gpus), func(i, j int) gpu.Link { return links[index[i]][index[j]] })
	for i, a := range gpus {
		for j, b := range gpus[:i] {
			if got, want := a.Node == b.Node, nodes[i] == nodes[j]; got != want {
				d.add("%s and %s are advertised in one NUMA node: %v, by nvidia-smi: %v", b.UUID, a.UUID, got, want)
			}
			if got, want := a.Clique == b.Clique, cliques[i] == cliques[j]; got != want {
				d.add("%s and %s are advertised in one clique: %v, by nvidia-smi: %v", b.UUID, a.UUID, got, want)
			}
		}
	}
	return d
}
