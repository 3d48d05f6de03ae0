package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuilder builds plugins from outside the tree for a small binary that
// stands for kube-scheduler, which then loads them.
func TestBuilder(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not on PATH: no plugin can be built")
	}
	t.Chdir("../..")
	bin, schedulers := t.TempDir(), t.TempDir()
	output(t, "go", "build", "-trimpath", "-o", filepath.Join(bin, "kube-scheduler"), "./plugins/builder/testdata/host")

	// One written for KubeDevice, one to our own import paths, one of our tree.
	outside := module(t, scheduler)
	for name, plugin := range map[string]string{"old": "kubedevice-api/testdata/oldplugin/scheduler", "own": outside, "tree": "plugins/example/scheduler"} {
		file, err := run(plugin, filepath.Join(schedulers, name+".so"), bin)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if stat, err := os.Stat(file); err != nil || stat.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v %v", name, stat.Mode(), err)
		}
	}
	if got := output(t, filepath.Join(bin, "kube-scheduler"), schedulers); got != "dongle\nown\nwidget\n" {
		t.Errorf("loaded %q", got)
	}

	for want, plugin := range map[string]string{
		"is in no Go module": t.TempDir(),
		"exports neither CreateDeviceSchedulerPlugin nor CreateDevicePlugin": module(t, "package main\n\nfunc main() {}\n"),
		"no such file or directory": filepath.Join(bin, "none"),
	} {
		out := filepath.Join(t.TempDir(), "bad.so")
		if _, err := run(plugin, out, bin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: a plugin was written", want)
		}
	}
	if _, err := run(outside, "", t.TempDir()); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Error(err)
	}
}

// TestGPUPlugin: go-nvml leaves NVML's functions undefined, with which no plugin
// can be opened; with package nvmllink it can, on machines with driver and without.
func TestGPUPlugin(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not on PATH: no plugin can be built")
	}
	t.Chdir("../..")
	bin := t.TempDir()
	for _, name := range []string{"kube-scheduler", "kubecri"} {
		output(t, "go", "build", "-trimpath", "-o", filepath.Join(bin, name), "./plugins/builder/testdata/host")
	}
	folder := map[string]string{}
	for _, plugin := range []string{"plugins/nvidiagpu/scheduler", "plugins/nvidiagpu/device", "test/fakegpu/device"} {
		file, err := run(plugin, "", bin)
		if err != nil {
			t.Fatalf("%s: %v", plugin, err)
		}
		folder[plugin] = file
	}
	undefined(t, folder["plugins/nvidiagpu/device"])
	load := func(binary, plugin, want string) {
		t.Helper()
		only := filepath.Join(t.TempDir(), filepath.Base(folder[plugin]))
		if err := os.Rename(folder[plugin], only); err != nil {
			t.Fatal(err)
		}
		if got := output(t, filepath.Join(bin, binary), filepath.Dir(only)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", plugin, got, want)
		}
	}
	load("kube-scheduler", "plugins/nvidiagpu/scheduler", "nvidiagpu")
	load("kubecri", "plugins/nvidiagpu/device", "nvidiagpu ")
	load("kubecri", "test/fakegpu/device", "nvidiagpu 16\n")
}

// undefined names the functions that plugins/nvidiagpu/nvmllink/symbols.h lacks.
func undefined(t *testing.T, file string) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "nvml") {
			t.Errorf("plugins/nvidiagpu/nvmllink/symbols.h lacks %s", s.Name)
		}
	}
}

func TestName(t *testing.T) {
	for plugin, want := range map[string]string{"/a/gpu/scheduler": "gpu", "/a/gpu/device": "gpu", "/a/gpu": "gpu"} {
		if got := name(plugin); got != want {
			t.Errorf("%s: %s", plugin, got)
		}
	}
}

const scheduler = `package main

import (
	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

type own struct{ group.Scheduler }

func (*own) GetName() string { return "own" }

func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { return &own{}, nil }

func main() {}
`

// module makes a module of a plugin, which requires Kubeslot in any version.
func module(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"main.go": source,
		"go.mod": "module example.com/own\n\ngo 1.26.0\n\nrequire github.com/kubeslot/kubeslot v0.0.0\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return string(out)
}
