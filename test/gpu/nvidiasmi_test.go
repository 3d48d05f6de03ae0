package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

func testdata(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseQuery(t *testing.T) {
	got, err := parseQuery(testdata(t, "query.xml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []smiGPU{
		{
			UUID: "GPU-5c9a1f0e-0000-4000-8000-000000000001", Minor: "1", MIG: "Enabled", Bus: "00000000:01:00.0",
			Memory: "81920 MiB", Slices: []smiSlice{{"19968 MiB"}, {"19968 MiB"}},
		},
		{
			UUID: "GPU-5c9a1f0e-0000-4000-8000-000000000002", Minor: "0", MIG: "N/A", Bus: "00000000:81:00.0",
			Memory: "24564 MiB",
		},
		{
			UUID: "GPU-5c9a1f0e-0000-4000-8000-000000000003", Minor: "2", MIG: "N/A", Bus: "0000000F:01:00.0",
			Memory: "N/A",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for input, want := range map[string]string{
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.": "EOF",
		"<rocm/>": "rocm",
		"<nvidia_smi_log><gpu><minor_number>0</minor_number></gpu></nvidia_smi_log>": "GPU 0 has no uuid",
	} {
		if got, err := parseQuery([]byte(input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %v, want %q", input, got, err, want)
		}
	}
}

// As in NVIDIA's MIG user guide, https://docs.nvidia.com/datacenter/tesla/mig-user-guide.
func TestParseList(t *testing.T) {
	got, err := parseList([]byte("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c9a1f0e-0000-4000-8000-000000000001)\n" +
		"  MIG 3g.20gb     Device  0: (UUID: MIG-5c9a1f0e-0000-5000-8000-000000000003)\n" +
		"  MIG 1c.2g.10gb  Device  1: (UUID: MIG-5c9a1f0e-0000-5000-8000-000000000004)\n" +
		"  MIG 1g.5gb+me   Device  2: (UUID: MIG-5c9a1f0e-0000-5000-8000-000000000005)\n" +
		"GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-5c9a1f0e-0000-4000-8000-000000000002)\n"))
	want := []smiDevice{
		{"MIG-5c9a1f0e-0000-5000-8000-000000000003", "3g.20gb"},
		{"MIG-5c9a1f0e-0000-5000-8000-000000000004", "1c.2g.10gb"},
		{"MIG-5c9a1f0e-0000-5000-8000-000000000005", "1g.5gb+me"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got, err := parseList([]byte("No devices found.\n")); err == nil {
		t.Errorf("%v of a list without GPUs", got)
	}
}

// The matrices are as in https://github.com/NVIDIA/nccl/issues/1617 (four H100, topo -m), and the one of PCIe alone as
// in https://github.com/deepseek-ai/DeepEP/issues/60 (topo -mp), with that machine's NUMA nodes.
func TestLinks(t *testing.T) {
	nvlinks, err := parseMatrix(testdata(t, "topo-m.txt"))
	if err != nil {
		t.Fatal(err)
	}
	pcie, err := parseMatrix(testdata(t, "topo-mp.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := links(nvlinks, pcie)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		for j := range 4 {
			want := gpu.Link{NVLinks: 6, Path: gpu.AcrossNodes}
			if i == j {
				want = gpu.Link{}
			}
			if got[i][j] != want {
				t.Errorf("%d and %d: %+v, want %+v", i, j, got[i][j], want)
			}
		}
	}
}

func TestLinksOfEachKind(t *testing.T) {
	// As in https://xuesongtap.github.io: two GPUs of a workstation, with a third.
	matrix, err := parseMatrix([]byte("        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity\n" +
		"GPU0     X      PHB     PXB     0-11            N/A\n" +
		"GPU1    PHB      X      SYS     0-11            N/A\n" +
		"GPU2    PXB     SYS      X      0-11            N/A\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := links(matrix, matrix)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]gpu.Link{
		{{}, {Path: gpu.SameNode}, {Path: gpu.SameSwitch}},
		{{Path: gpu.SameNode}, {}, {Path: gpu.AcrossNodes}},
		{{Path: gpu.SameSwitch}, {Path: gpu.AcrossNodes}, {}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBadMatrix(t *testing.T) {
	for input, want := range map[string]string{
		"":                                   "0 columns",
		"No devices were found":              "0 columns",
		"\tGPU0\tGPU1\nGPU0\tX\tSYS\n":       "2 columns and 1 rows",
		"\tGPU0\tGPU1\nGPU1\tX\tSYS\n":       "row 0",
		"\tGPU0\tGPU1\nGPU0\tSYS\tX\n":       "row 0",
		"\tGPU0\tGPU1\nGPU0\tX\nGPU1\tX\tX ": "row 0",
	} {
		if got, err := parseMatrix([]byte(input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v %v, want %q", input, got, err, want)
		}
	}
	nv := [][]string{{"X", "NV4"}, {"NV4", "X"}}
	for want, both := range map[string][2][][]string{
		`"NV4", which is unknown`: {nv, nv},
		"has 2 GPUs, and -mp 1":   {nv, {{"X"}}},
		"GPU0 and GPU1: strconv":  {{{"X", "NVx"}, {"NVx", "X"}}, {{"X", "SYS"}, {"SYS", "X"}}},
	} {
		if got, err := links(both[0], both[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v %v, want %q", both, got, err, want)
		}
	}
}
