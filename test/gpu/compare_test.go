package main

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// each compares all that there is to compare.
func each(advertised []gpu.GPU, nvml []nvmlGPU, smi []smiGPU, links [][]gpu.Link) differences {
	d := append(compareInventory(advertised, smi), compareMemory(advertised, smi)...)
	addresses, minors, modes := compareReadings(nvml, smi)
	d = append(append(append(d, addresses...), minors...), modes...)
	return append(d, compareGroups(advertised, smi, links)...)
}

func TestCompare(t *testing.T) {
	type all struct {
		advertised []gpu.GPU
		nvml       []nvmlGPU
		smi        []smiGPU
		links      [][]gpu.Link
	}
	for name, test := range map[string]struct {
		change func(*all)
		want   []string // what the differences say; none if there is none
	}{
		"equal":                 {func(*all) {}, nil},
		"rounded by nvidia-smi": {func(a *all) { a.smi[0].Memory = "81919 MiB" }, nil},
		"groups are numbered apart": {
			func(a *all) { a.advertised[0].Node, a.advertised[1].Node = "7", "7" },
			nil,
		},
		"a GPU is not advertised": {
			func(a *all) { a.advertised = a.advertised[1:] },
			[]string{"GPU-a with MIG mode Disabled"},
		},
		"a GPU that is not there": {
			func(a *all) { a.advertised[2].UUID = "GPU-x" },
			[]string{"GPU-c with", "GPU-x is advertised"},
		},
		"a GPU in MIG mode as whole": {
			func(a *all) { a.smi[0].MIG = "Enabled" },
			[]string{"GPU-a with MIG mode Enabled", "GPU-a: NVML says false"},
		},
		"other memory": {
			func(a *all) { a.advertised[1].Memory = 40 << 30 },
			[]string{"GPU-b: 40960 MiB"},
		},
		"memory without a number": {
			func(a *all) { a.smi[1].Memory = "[Unknown Error]" },
			[]string{"GPU-b: nvidia-smi says \"[Unknown"},
		},
		"other address": {
			func(a *all) { a.nvml[2].bus = "00000001:03:00.0" },
			[]string{"GPU-c: NVML says 00000001:03:00.0"},
		},
		"other minor number": {
			func(a *all) { a.nvml[0].minor = 1 },
			[]string{"GPU-a: NVML says 1, and nvidia-smi 0"},
		},
		"other order": {
			func(a *all) { a.nvml[0], a.nvml[1] = a.nvml[1], a.nvml[0] },
			[]string{"index 0 is GPU-b", "index 1 is GPU-a"},
		},
		"NVML has fewer": {
			func(a *all) { a.nvml = a.nvml[:2] },
			[]string{"NVML has 2 GPUs, and nvidia-smi 3"},
		},
		"other clique": {
			func(a *all) { a.advertised[1].Clique = "1" },
			[]string{
				"GPU-b and GPU-c are advertised in one clique: true",
				"GPU-a and GPU-b are advertised in one clique: false",
			},
		},
		"other NUMA node": {
			func(a *all) { a.advertised[2].Node = "0" },
			[]string{
				"GPU-a and GPU-c are advertised in one NUMA node: true",
				"GPU-b and GPU-c are advertised in one NUMA node: true",
			},
		},
		"a topology of fewer": {
			func(a *all) { a.links = a.links[:2] },
			[]string{"-q has 3 GPUs, and topo 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Two GPUs with NVLink, and one apart.
			near := gpu.Link{NVLinks: 4, Path: gpu.SameNode}
			a := all{
				advertised: []gpu.GPU{
					{UUID: "GPU-a", Node: "0", Clique: "0", Memory: 80 << 30},
					{UUID: "GPU-b", Node: "0", Clique: "0", Memory: 80 << 30},
					{UUID: "GPU-c", Node: "1", Clique: "1"}, // it shares the machine's memory
				},
				nvml: []nvmlGPU{
					{uuid: "GPU-a", bus: "00000000:0a:00.0"},
					{uuid: "GPU-b", bus: "00000000:0b:00.0", minor: 1},
					{uuid: "GPU-c", bus: "00000001:0c:00.0", minor: 2},
				},
				smi: []smiGPU{
					{UUID: "GPU-a", Bus: "00000000:0A:00.0", Minor: "0", MIG: "Disabled", Memory: "81920 MiB"},
					{UUID: "GPU-b", Bus: "00000000:0B:00.0", Minor: "1", MIG: "Disabled", Memory: "81920 MiB"},
					{UUID: "GPU-c", Bus: "00000001:0C:00.0", Minor: "2", MIG: "N/A", Memory: "N/A"},
				},
				links: [][]gpu.Link{{{}, near, {}}, {near, {}, {}}, {{}, {}, {}}},
			}
			test.change(&a)
			got := each(a.advertised, a.nvml, a.smi, a.links)
			if len(got) != len(test.want) {
				t.Errorf("%d differences, want %d: %q", len(got), len(test.want), got)
			}
			for _, want := range test.want {
				if !strings.Contains(strings.Join(got, "\n"), want) {
					t.Errorf("%q says nothing of %q", got, want)
				}
			}
		})
	}
}
