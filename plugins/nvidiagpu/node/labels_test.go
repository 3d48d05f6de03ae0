package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
)

// gpus is a machine, with a word for each GPU: its model, and after a colon the profiles of its slices.
func gpus(words ...string) machine {
	m := machine{driver: "550.54.15", cuda: 12040}
	for _, word := range words {
		name, profiles, mig := strings.Cut(word, ":")
		g := found{GPU: gpu.GPU{UUID: word, Memory: 40 << 30}, capable: name == "A100", mig: mig}
		for profile := range strings.FieldsSeq(strings.ReplaceAll(profiles, ",", " ")) {
			g.slices = append(g.slices, slice{profile: profile, memory: 5 << 30})
		}
		m.gpus = append(m.gpus, g)
		m.models = append(m.models, model{"NVIDIA " + name, "ampere", 8, 0})
	}
	return m
}

// The labels are those that GPU feature discovery has.
func TestLabels(t *testing.T) {
	const sharing = "\nsharing: {%: {resources: [{name: gpu, replicas: 4}]}}"
	slicing, mps := strings.Replace(sharing, "%", "timeSlicing", 1), strings.Replace(sharing, "%", "mps", 1)
	renamed := strings.Replace(slicing, "replicas: 4", "replicas: 4, rename: gpu.shared", 1)
	single, mixed := "flags: {migStrategy: single}", "flags: {migStrategy: mixed}"
	// Product, count, memory, replicas, strategy, MIG: capable, strategy, MPS.
	for _, test := range []struct {
		name, config string
		machine      machine
		want         string
	}{
		{"whole", "", gpus("A100", "A100"), "A100 2 40960 1 none true none false"},
		{"without MIG", "", gpus("T4"), "T4 1 40960 1 none false none false"},
		{"the most", "", gpus("T4", "A100", "A100"), "A100 2 40960 1 none true none false"},
		{"the first of equals", "", gpus("T4", "A100"), "T4 1 40960 1 none true none false"},
		{"shared", slicing, gpus("A100"), "A100-SHARED 1 40960 4 time-slicing true none false"},
		{"renamed", renamed, gpus("A100"), "A100 1 40960 4 time-slicing true none false"},
		{"MPS", mps, gpus("A100"), "A100-SHARED 1 40960 4 mps true none true"},
		{"MPS beside MIG", mps, gpus("A100", "A100:"), "A100-SHARED 2 40960 4 mps true none false"},
		{"single", single, gpus("A100:1g.5gb,1g.5gb", "A100:1g.5gb"),
			"A100-MIG-1g.5gb 3 5120 1 none true single false"},
		{"single, shared", single + slicing, gpus("A100:1g.5gb"),
			"A100-MIG-1g.5gb-SHARED 1 5120 4 time-slicing true single false"},
		{"single, no MIG", single, gpus("A100"), "A100 1 40960 1 none true single false"},
		{"single, not alike", single, gpus("A100:1g.5gb,2g.10gb"), "A100-MIG-INVALID 0 0 0 - true single false"},
		{"single, one is not", single, gpus("A100", "A100:1g.5gb"), "A100-MIG-INVALID 0 0 0 - true single false"},
		{"single, no slices", single, gpus("A100:"), "A100-MIG-INVALID 0 0 0 - true single false"},
		{"mixed", mixed + slicing, gpus("A100:1g.5gb", "A100"), "A100-SHARED 2 40960 4 time-slicing true mixed false"},
		{"mixed, no whole GPU", mixed + slicing, gpus("A100:1g.5gb"), "A100 1 40960 0 none true mixed false"},
	} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := config.Environment{File: file}.Load("")
		if err != nil {
			t.Fatal(test.name, err)
		}
		labels := test.machine.labels(c)
		var got []string
		for _, key := range []string{"gpu.product", "gpu.count", "gpu.memory", "gpu.replicas", "gpu.sharing-strategy",
			"mig.capable", "mig.strategy", "mps.capable"} {
			value, ok := labels[key]
			if !ok {
				value = "-"
			}
			got = append(got, value)
		}
		if got := strings.TrimPrefix(strings.Join(got, " "), "NVIDIA-"); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if labels := gpus().labels(&config.Config{}); len(labels) > 0 {
		t.Errorf("a machine without GPUs: %v", labels)
	}
}

func TestLabelVersions(t *testing.T) {
	labels := gpus("A100").labels(&config.Config{})
	want := map[string]string{
		"cuda.driver-version.full": "550.54.15", "cuda.driver-version.major": "550", "cuda.driver-version.minor": "54",
		"cuda.driver-version.revision": "15", "cuda.runtime-version.full": "12.4", "cuda.runtime-version.major": "12",
		"cuda.runtime-version.minor": "4", "gpu.family": "ampere", "gpu.compute.major": "8", "gpu.compute.minor": "0",
	}
	for key, value := range want {
		if labels[key] != value {
			t.Errorf("%s is %q", key, labels[key])
		}
	}
	m := gpus("A100")
	m.driver, m.cuda = "", 0 // NVML does not say
	for key := range m.labels(&config.Config{}) {
		if strings.HasPrefix(key, "cuda.") {
			t.Errorf("%s, of which nothing is known", key)
		}
	}
}

// Whatever a GPU is called, a label's value is valid.
func TestLabelValue(t *testing.T) {
	for text, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB":         "NVIDIA-A100-SXM4-40GB",
		"NVIDIA  RTX(TM) A4000/2 ":      "NVIDIA-RTXTM-A40002",
		"-_.":                           "",
		"":                              "",
		"ü €":                           "",
		strings.Repeat("a", 62) + " b":  strings.Repeat("a", 62),
		strings.Repeat("a", 100):        strings.Repeat("a", 63),
		"(Quadro)\nRTX\x006000 SHARED ": "QuadroRTX6000-SHARED",
	} {
		if got := labelValue(text); got != want || len(validation.IsValidLabelValue(got)) > 0 {
			t.Errorf("%q is %q", text, got)
		}
	}
}

// The Node's label chooses the configuration, and a bad one changes nothing.
func TestNodeLabels(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("default", "version: v1")
	const shared = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"
	write("shared", shared)
	write("broken", strings.Replace(shared, "2", "0", 1))
	m := fakenvml.New(fakenvml.Layouts["two-cliques"])
	d := NewDevice(m, noLoad)
	d.getenv = func(name string) string { return map[string]string{"CONFIG_FILE": dir}[name] }
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	counts := func(label string) (map[string]string, types.ResourceList, error) {
		t.Helper()
		own, err := d.NodeLabels(map[string]string{config.Label: label})
		if err != nil {
			t.Fatal(err)
		}
		info := types.NewNodeInfo()
		return own, info.KubeAlloc, d.UpdateNodeInfo(info)
	}
	own, advertised, err := counts("")
	if err != nil || !cmp.Equal(advertised, types.ResourceList{gpu.Resource: 8}) {
		t.Error(advertised, err)
	}
	if own["gpu.kubeslot.io/count"] != "8" || own["gpu.kubeslot.io/product"] == "" ||
		own["gpu.kubeslot.io/cuda.driver-version.full"] == "" {
		t.Error(own)
	}
	own, advertised, err = counts("shared")
	if err != nil || advertised["nvidia.com/gpu.shared"] != 16 || advertised[gpu.Resource] != 0 {
		t.Error(advertised, err)
	}
	if own["gpu.kubeslot.io/replicas"] != "2" || own["gpu.kubeslot.io/sharing-strategy"] != "time-slicing" {
		t.Error(own)
	}
	for _, label := range []string{"broken", "missing"} {
		own, _, err = counts(label)
		if err == nil || !strings.Contains(err.Error(), label) ||
			own["gpu.kubeslot.io/replicas"] != "2" {
			t.Errorf("%s: %v, %v", label, own, err)
		}
	}
	// What a look before that found is not said when NVML fails.
	all := m.DeviceGetCountFunc
	m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if _, err := d.NodeLabels(nil); err == nil {
		t.Error("NVML fails")
	}
	if err := d.UpdateNodeInfo(types.NewNodeInfo()); err == nil || !strings.Contains(err.Error(), "DeviceGetCount") {
		t.Error(err)
	}
	m.DeviceGetCountFunc = all
	d.environment.NVIDIALabels = true
	own, _, err = counts("default")
	if err != nil || own["nvidia.com/gpu.replicas"] != "1" || own["nvidia.com/gpu.family"] != "ampere" ||
		own["nvidia.com/cuda.runtime-version.major"] == "" {
		t.Error(own, err)
	}
	for key := range own {
		if !strings.HasPrefix(key, "nvidia.com/") || len(validation.IsQualifiedName(key)) > 0 {
			t.Error(key)
		}
	}
}

// A configuration that cannot be fails the start, by its file and entry.
func TestBadConfigurationAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gpus.yaml")
	if err := os.WriteFile(file, []byte("sharing: {mps: {resources: [{name: gpu, replicas: 0}]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewDevice(fakenvml.New(fakenvml.Layouts["one"]), noLoad)
	d.getenv = func(name string) string { return map[string]string{"CONFIG_FILE": file}[name] }
	if err := d.Start(); err == nil || !strings.Contains(err.Error(), file+": sharing.mps.resources[0]") {
		t.Error(err)
	}
}
