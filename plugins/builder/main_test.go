package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/test/need"
)

// hosts builds a small program that stands for kube-scheduler and for kubecri, which loads
// plugins. It returns their directory.
func hosts(t *testing.T) string {
	t.Helper()
	need.Program(t, "no plugin can be built: apt-get install gcc", "gcc")
	t.Chdir("../..")
	bin := t.TempDir()
	scheduler := filepath.Join(bin, "kube-scheduler")
	output(t, "go", "build", "-trimpath", "-ldflags=-w", "-o", scheduler, "./plugins/builder/testdata/host")
	if err := os.Link(scheduler, filepath.Join(bin, "kubecri")); err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestBuilder builds plugins from outside the tree, which the scheduler then loads.
func TestBuilder(t *testing.T) {
	bin, schedulers := hosts(t), t.TempDir()
	// One to our own import paths, and without -short one of our tree and one written for
	// KubeDevice.
	outside := module(t, scheduler)
	plugins, want := map[string]string{"own": outside}, "own\n"
	if !testing.Short() {
		plugins["old"], plugins["tree"] = "kubedevice-api/testdata/oldplugin/scheduler", "plugins/example/scheduler"
		want = "dongle\nown\nwidget\n"
	}
	for name, plugin := range plugins {
		file, err := run(plugin, filepath.Join(schedulers, name+".so"), bin)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if stat, err := os.Stat(file); err != nil || stat.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v %v", name, stat.Mode(), err)
		}
	}
	if got := output(t, filepath.Join(bin, "kube-scheduler"), schedulers); got != want {
		t.Errorf("loaded %q, want %q", got, want)
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
	if testing.Short() {
		t.Skip("builds three more plugins: make test-all")
	}
	bin := hosts(t)
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
