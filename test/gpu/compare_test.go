package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// sides are what is compared.
type sides struct {
	advertised []gpu.GPU
	nvml       []nvmlGPU
	smi        []smiGPU
	list       []smiDevice
	links      [][]gpu.Link
}

func (s sides) compare() differences {
	addresses, minors, modes := compareReadings(s.nvml, s.smi)
	return slices.Concat(compareInventory(s.advertised, s.smi), compareMemory(s.advertised, s.smi),
		addresses, minors, modes,
		compareSlices(s.advertised, s.list), compareGroups(s.advertised, s.smi, s.links))
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*sides)
		want   []string // what the differences say; none if there is none
	}{
		"equal":                 {func(*sides) {}, nil},
		"rounded by nvidia-smi": {func(a *sides) { a.smi[0].Memory = "81919 MiB" }, nil},
		"groups are numbered apart": {
			func(a *sides) { a.advertised[0].Node, a.advertised[1].Node = "7", "7" },
			nil,
		},
		"a GPU is not advertised": {
			func(a *sides) { a.advertised = a.advertised[1:] },
			[]string{"GPU-a with MIG mode Disabled is advertised 0 times"},
		},
		"a GPU that is not there": {
			func(a *sides) { a.advertised[2].UUID = "GPU-x" },
			[]string{"GPU-c with MIG mode N/A is advertised 0 times", "GPU-x is advertised"},
		},
		"a GPU in MIG mode as whole": {
			func(a *sides) { a.smi[0].MIG = "Enabled" },
			[]string{"GPU-a with MIG mode Enabled is advertised 1 times, with 0 slices", "GPU-a: NVML says false"},
		},
		"other memory": {
			func(a *sides) { a.advertised[1].Memory = 40 << 30 },
			[]string{"GPU-b: [40960] MiB"},
		},
		"memory without a number": {
			func(a *sides) { a.smi[1].Memory = "[Unknown Error]" },
			[]string{"GPU-b: nvidia-smi says \"[Unknown"},
		},
		"other address": {
			func(a *sides) { a.nvml[2].bus = "00000001:03:00.0" },
			[]string{"GPU-c: NVML says 00000001:03:00.0"},
		},
		"other minor number": {
			func(a *sides) { a.nvml[0].minor = 1 },
			[]string{"GPU-a: NVML says 1, and nvidia-smi 0"},
		},
		"other order": {
			func(a *sides) { a.nvml[0], a.nvml[1] = a.nvml[1], a.nvml[0] },
			[]string{"index 0 is GPU-b", "index 1 is GPU-a"},
		},
		"NVML has fewer": {
			func(a *sides) { a.nvml = a.nvml[:2] },
			[]string{"NVML has 2 GPUs, and nvidia-smi 4"},
		},
		"other clique": {
			func(a *sides) { a.advertised[1].Clique = "1" },
			[]string{
				"GPU-b and GPU-c are advertised in one clique: true",
				"GPU-a and GPU-b are advertised in one clique: false",
			},
		},
		"other NUMA node": {
			func(a *sides) { a.advertised[2].Node = "0" },
			[]string{
				"GPU-a and GPU-c are advertised in one NUMA node: true",
				"GPU-b and GPU-c are advertised in one NUMA node: true",
			},
		},
		"a slice is not advertised": {
			func(a *sides) { a.advertised = a.advertised[:4] },
			[]string{
				"GPU-d with MIG mode Enabled is advertised 0 times, with 1 slices; nvidia-smi has 2",
				"MIG-2 is advertised as \"\"",
			},
		},
		"a slice that is not there": {
			func(a *sides) { a.smi[3].Slices, a.list = a.smi[3].Slices[:1], a.list[:1] },
			[]string{"GPU-d with MIG mode Enabled is advertised 0 times, with 2 slices", "MIG-2 is advertised, and"},
		},
		"another profile": {
			func(a *sides) { a.advertised[3].Kind = "mig-1g.5gb" },
			[]string{"MIG-1 is advertised as \"mig-1g.5gb\", want \"mig-1g.5gb.me\""},
		},
		"other memory of a slice": {
			func(a *sides) { a.advertised[4].Memory = 4 << 30 },
			[]string{"GPU-d: [4096 4992] MiB are advertised, and nvidia-smi says [4992 10112]"},
		},
		"a topology of fewer": {
			func(a *sides) { a.links = a.links[:2] },
			[]string{"-q has 4 GPUs, and topo 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Two GPUs with NVLink, one apart, and one with MIG slices.
			near := gpu.Link{NVLinks: 4, Path: gpu.SameNode}
			a := sides{
				advertised: []gpu.GPU{
					{UUID: "GPU-a", Node: "0", Clique: "0", Memory: 80 << 30},
					{UUID: "GPU-b", Node: "0", Clique: "0", Memory: 80 << 30},
					{UUID: "GPU-c", Node: "1", Clique: "1"}, // it shares the machine's memory
					{UUID: "GPU-d", Slice: "MIG-1", Kind: "mig-1g.5gb.me", Node: "2", Clique: "2", Memory: 4992 << 20},
					{UUID: "GPU-d", Slice: "MIG-2", Kind: "mig-2g.10gb", Node: "2", Clique: "2", Memory: 10112 << 20},
				},
				nvml: []nvmlGPU{
					{uuid: "GPU-a", bus: "00000000:0a:00.0"},
					{uuid: "GPU-b", bus: "00000000:0b:00.0", minor: 1},
					{uuid: "GPU-c", bus: "00000001:0c:00.0", minor: 2},
					{uuid: "GPU-d", bus: "00000001:0d:00.0", minor: 3, mig: true},
				},
				smi: []smiGPU{
					{UUID: "GPU-a", Bus: "00000000:0A:00.0", Minor: "0", MIG: "Disabled", Memory: "81920 MiB"},
					{UUID: "GPU-b", Bus: "00000000:0B:00.0", Minor: "1", MIG: "Disabled", Memory: "81920 MiB"},
					{UUID: "GPU-c", Bus: "00000001:0C:00.0", Minor: "2", MIG: "N/A", Memory: "N/A"},
					{
						UUID: "GPU-d", Bus: "00000001:0D:00.0", Minor: "3", MIG: "Enabled", Memory: "40960 MiB",
						Slices: []smiSlice{{"4992 MiB"}, {"10112 MiB"}},
					},
				},
				list:  []smiDevice{{"MIG-1", "1g.5gb+me"}, {"MIG-2", "2g.10gb"}},
				links: [][]gpu.Link{{{}, near, {}, {}}, {near, {}, {}, {}}, make([]gpu.Link, 4), make([]gpu.Link, 4)},
			}
			test.change(&a)
			got := a.compare()
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

func TestCompareLabels(t *testing.T) {
	smi := smiLog{Driver: "580.159.04", CUDA: "13.0", GPUs: []smiGPU{
		{Product: "NVIDIA H200", Memory: "143771 MiB"}, {Product: "NVIDIA H200", Memory: "143771 MiB"},
		{Product: "NVIDIA L4", Memory: "23034 MiB"},
	}}
	for changed, test := range map[string]struct {
		value string
		want  []string
	}{
		"none":                      {"", nil},
		"cuda.driver-version.full":  {"580.1", []string{`cuda.driver-version.full is "580.1"`}},
		"cuda.runtime-version.full": {"12.9", []string{`cuda.runtime-version.full is "12.9"`}},
		"product":                   {"NVIDIA-H100", []string{"count", `product is "NVIDIA-H100"`}},
		"memory":                    {"143", []string{`with memory "143"`}},
		"count":                     {"3", []string{`count is "3", and for nvidia-smi "2"`}},
	} {
		labels := map[string]string{
			"gpu.kubeslot.io/cuda.driver-version.full":  "580.159.04",
			"gpu.kubeslot.io/cuda.runtime-version.full": "13.0",
			"gpu.kubeslot.io/product":                   "NVIDIA-H200",
			"gpu.kubeslot.io/memory":                    "143771",
			"gpu.kubeslot.io/count":                     "2",
		}
		labels["gpu.kubeslot.io/"+changed] = test.value
		got := compareLabels(labels, smi)
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, want %q", changed, got, test.want)
		}
		for _, want := range test.want {
			if !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("%s: %q says nothing of %s", changed, got, want)
			}
		}
	}
}
