package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/plugintest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == isolateArgument || os.Args[1] == tryArgument) {
		child(os.Args[1:])
	}
	os.Exit(m.Run())
}

// migMinors is where the driver says which device nodes are of which slices.
const migMinors = "/proc/driver/nvidia-caps/mig-minors"

// onMachine runs the test once more, in a mount namespace in which there are device nodes of a driver and these beside:
// it returns true there. They are all /dev/null. The driver has no slices.
func onMachine(t *testing.T, nodes ...string) bool {
	t.Helper()
	const variable = "TEST_GPU_ON_MACHINE"
	if staging := os.Getenv(variable); staging != "" {
		c := container{Staging: staging}
		for _, name := range append(nodes, "nvidiactl", "nvidia-uvm") {
			c.Nodes = append(c.Nodes, node{"/dev/null", "/dev/" + name})
		}
		err := errors.Join(c.mountDevices(), unix.Mount("tmpfs", "/proc/driver", "tmpfs", 0, ""),
			os.Mkdir(filepath.Dir(migMinors), 0o755), os.WriteFile(migMinors, nil, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: cannot make device nodes for fake GPUs")
	}
	only := "-test.run=^" + regexp.QuoteMeta(t.Name()) + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], only, "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), variable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("cannot make a mount namespace: %v", err)
	case err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()):
		t.Errorf("in a mount namespace: %v\n%s", err, output)
	default:
		t.Logf("%s", output)
	}
	return false
}

// fakeCUDA builds the libcuda of testdata.
func fakeCUDA(t *testing.T, defines ...string) string {
	t.Helper()
	plugintest.NeedGCC(t)
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	args := append(defines, "-shared", "-fPIC", "-o", library, "testdata/cuda.c")
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return library
}

// fakeSMI answers as nvidia-smi on a machine with two GPUs. It reads what the plugin reads, by calls of its own.
type fakeSMI struct {
	*fakenvml.Machine
	profiles map[string]string // of MIG slices, by UUID
}

func (f fakeSMI) run(_ context.Context, args ...string) ([]byte, error) {
	driver, _ := f.SystemGetDriverVersion()
	cuda, _ := f.SystemGetCudaDriverVersion()
	query := fmt.Sprintf("<nvidia_smi_log><driver_version>%s</driver_version><cuda_version>%d.%d</cuda_version>",
		driver, cuda/1000, cuda%1000/10)
	list, matrix, pcie := "", "\tGPU0\tGPU1\n", "\tGPU0\tGPU1\n"
	for i := range 2 {
		g, _ := f.DeviceGetHandleByIndex(i)
		other, _ := f.DeviceGetHandleByIndex(1 - i)
		mode, parts := "Disabled", ""
		name, _ := g.GetName()
		list += fmt.Sprintf("GPU %d: %s (UUID: %s)\n", i, name, fakenvml.UUID(i))
		for j := range 7 {
			if part, code := g.GetMigDeviceHandleByIndex(j); code == nvml.SUCCESS {
				uuid, _ := part.GetUUID()
				memory, _ := part.GetMemoryInfo()
				mode = "Enabled"
				const text = "<mig_device><fb_memory_usage><total>%d MiB</total></fb_memory_usage></mig_device>"
				parts += fmt.Sprintf(text, memory.Total>>20)
				list += fmt.Sprintf("  MIG %s     Device  %d: (UUID: %s)\n", f.profiles[uuid], j, uuid)
			}
		}
		query += fmt.Sprintf("<gpu><product_name>%s</product_name><uuid>%s</uuid><minor_number>%d</minor_number>"+
			"<mig_mode><current_mig>%s</current_mig></mig_mode><mig_devices>%s</mig_devices>"+
			"<pci><pci_bus_id>00000000:%02X:00.0</pci_bus_id></pci>"+
			"<fb_memory_usage><total>40960 MiB</total></fb_memory_usage></gpu>",
			name, fakenvml.UUID(i), i, mode, parts, i+1)

		level, _ := g.GetTopologyCommonAncestor(other)
		path := map[nvml.GpuTopologyLevel]string{nvml.TOPOLOGY_SINGLE: "PIX", nvml.TOPOLOGY_SYSTEM: "SYS"}[level]
		link, n := path, 0
		for state := nvml.FEATURE_ENABLED; state == nvml.FEATURE_ENABLED; n++ {
			state, _ = g.GetNvLinkState(n)
		}
		if n > 1 {
			link = fmt.Sprintf("NV%d", n-1)
		}
		matrix += fmt.Sprintf("GPU%d\t%s\t0-7\n", i, []string{" X \t" + link, link + "\t X "}[i])
		pcie += fmt.Sprintf("GPU%d\t%s\t0-7\n", i, []string{" X \t" + path, path + "\t X "}[i])
	}
	answer, ok := map[string]string{
		"-q -x": query + "</nvidia_smi_log>", "-L": list, "topo -m": matrix, "topo -mp": pcie,
	}[strings.Join(args, " ")]
	if !ok {
		return nil, fmt.Errorf("nvidia-smi has no %q", args)
	}
	return []byte(answer), nil
}

// fake is a machine with two GPUs.
func fake(cuda string) machine {
	layout := fakenvml.Layouts["two-cliques"]
	layout.GPUs = 2
	m := fakenvml.New(layout)
	return machine{lib: m, load: func() error { return nil }, smi: fakeSMI{Machine: m}.run, cuda: cuda, size: 1 << 20}
}

// results are the rows of the table that did not pass.
func results(r report) []string {
	var rows []string
	for _, row := range r {
		if row.result != passed {
			rows = append(rows, fmt.Sprintf("%s: %s: %s", row.check, row.result, row.detail))
		}
	}
	return rows
}

func (r report) String() string {
	var b strings.Builder
	r.print(&b)
	return b.String()
}

// Where all is right, all rows are ok; what is wrong fails the row that says so.
func TestMachine(t *testing.T) {
	if !onMachine(t, "nvidia0", "nvidia1") {
		return
	}
	right := fake(fakeCUDA(t)).check(t.Context())
	t.Logf("\n%s", right)
	if rows := results(right); len(rows) > 0 {
		t.Errorf("%q", rows)
	}
	if want := 20; len(right) != want {
		t.Errorf("%d rows, want %d", len(right), want)
	}
	for name, test := range map[string]struct {
		machine func(t *testing.T) machine
		want    []string // beginnings of the rows that did not pass
	}{
		"bytes that change": {
			func(t *testing.T) machine { return fake(fakeCUDA(t, "-DCORRUPT")) },
			[]string{
				"CUDA outside of containers: failed: GPU 0",
				"a container with " + fakenvml.UUID(0) + ": copies: failed: GPU 0",
				"a container with " + fakenvml.UUID(1) + ": copies: failed: GPU 0",
				"a container with all GPUs: copies: failed: GPU 0",
			},
		},
		"a GPU that CUDA does not see": {
			func(t *testing.T) machine { return fake(fakeCUDA(t, "-DBLIND")) },
			[]string{
				"a container with " + fakenvml.UUID(0) + ": sees: failed",
				"a container with " + fakenvml.UUID(1) + ": sees: failed",
				"a container with all GPUs: sees: failed",
			},
		},
		"another GPU than was given": {
			func(t *testing.T) machine { return fake(fakeCUDA(t, "-DNEAR")) },
			[]string{
				"a container with " + fakenvml.UUID(0) + ": sees: failed",
				"a container with " + fakenvml.UUID(1) + ": sees: failed",
				"a container with all GPUs: sees: failed",
			},
		},
		"no libcuda": {
			func(t *testing.T) machine { return fake("libcuda-that-is-not-there.so.1") },
			[]string{"CUDA outside of containers: not compared: open libcuda-that-is-not-there.so.1"},
		},
		"no nvidia-smi": {
			func(t *testing.T) machine {
				m := fake(fakeCUDA(t))
				m.smi = func(context.Context, ...string) ([]byte, error) { return nil, exec.ErrNotFound }
				return m
			},
			[]string{"GPUs against nvidia-smi -q -x: not compared: executable file not found"},
		},
		"no topology": {
			func(t *testing.T) machine {
				m := fake(fakeCUDA(t))
				all := m.smi
				m.smi = func(ctx context.Context, args ...string) ([]byte, error) {
					if args[0] == "topo" {
						return nil, errors.New("not supported here")
					}
					return all(ctx, args...)
				}
				return m
			},
			[]string{"cliques and NUMA nodes against nvidia-smi topo: not compared: not supported here"},
		},
		"no driver": {
			func(*testing.T) machine { return machine{load: func() error { return errors.New("no library") }} },
			[]string{"the plugin reads the GPUs: failed: this machine has no NVIDIA driver: no library"},
		},
		"a GPU that is lost": {
			func(t *testing.T) machine {
				m := fake(fakeCUDA(t))
				m.lib.(*fakenvml.Machine).Lose(1, true)
				return m
			},
			[]string{"the plugin reads the GPUs: failed: NVML: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows := results(test.machine(t).check(t.Context()))
			if len(rows) != len(test.want) {
				t.Errorf("%d rows did not pass, want %d: %q", len(rows), len(test.want), rows)
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(row, want) }) {
					t.Errorf("no row begins with %q: %q", want, rows)
				}
			}
		})
	}
}

// Each way to isolate a container leaves it the nodes that it was given.
func TestIsolations(t *testing.T) {
	if !onMachine(t, "nvidia0", "nvidia1", "nvidia2") {
		return
	}
	library := fakeCUDA(t)
	for _, by := range isolations {
		t.Run(by.name, func(t *testing.T) {
			c := container{
				Nodes:  []node{{"/dev/nvidiactl", "/dev/nvidiactl"}, {"/dev/nvidia1", "/dev/nvidia1"}},
				Others: []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"}, // of which one is given, to be found
				CUDA:   library,
				Bytes:  1 << 20,
			}
			got, err := c.run(t.Context(), by)
			if err != nil && by.flags&unix.CLONE_NEWUSER != 0 && errors.Is(err, os.ErrPermission) {
				t.Skipf("this machine allows no user namespaces: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{bare(fakenvml.UUID(1))}; !slices.Equal(got.UUIDs, want) || got.NoCUDA != "" {
				t.Errorf("CUDA sees %q, want %q; %s", got.UUIDs, want, got.NoCUDA)
			}
			if want := []string{"/dev/nvidia1"}; !slices.Equal(got.Opened, want) {
				t.Errorf("it could open %q, want %q", got.Opened, want)
			}
			// Its mounts are its own.
			for i := range 3 {
				if path := fmt.Sprintf("/dev/nvidia%d", i); !opens(path) {
					t.Errorf("%s is gone outside of the container", path)
				}
			}
		})
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "test-gpu-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
}

// A MIG slice is a container's by the device nodes of its instances, and those of its GPU's other slices are closed.
func TestSlices(t *testing.T) {
	if !onMachine(t, "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2",
		"nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap4") {
		return
	}
	layout := fakenvml.Layout{GPUs: 2, Ancestor: fakenvml.Tree(1, 1), Slices: func(i int) []string {
		return [][]string{nil, {"1g.5gb.me", "2g.10gb"}}[i]
	}}
	lib := fakenvml.New(layout)
	profiles := map[string]string{
		fakenvml.SliceUUID(1, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 0): "1g.5gb+me",
		fakenvml.SliceUUID(1, nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2):      "2g.10gb",
	}
	g, _ := lib.DeviceGetHandleByIndex(1)
	minors := ""
	for i, index := range []int{0, 2} {
		part, _ := g.GetMigDeviceHandleByIndex(index)
		instance, _ := part.GetGpuInstanceId()
		minors += fmt.Sprintf("gpu1/gi%d/access %d\ngpu1/gi%d/ci0/access %d\n", instance, 2*i+1, instance, 2*i+2)
		// What the libcuda of testdata takes for a slice.
		uuid, _ := part.GetUUID()
		t.Setenv(fmt.Sprintf("FAKE_CAP_%d", 2*i+2), strings.ReplaceAll(bare(uuid), "-", ""))
	}
	t.Setenv("FAKE_MIG_1", "1")
	if err := os.WriteFile(migMinors, []byte(minors), 0o600); err != nil {
		t.Fatal(err)
	}
	m := machine{
		lib: lib, load: func() error { return nil }, smi: fakeSMI{lib, profiles}.run, cuda: fakeCUDA(t), size: 1 << 20,
	}
	right := m.check(t.Context())
	t.Logf("\n%s", right)
	if rows := results(right); len(rows) > 0 {
		t.Errorf("%q", rows)
	}
	second := fakenvml.SliceUUID(1, nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2)
	want := row{"a container with " + second + ": others", passed,
		"cannot open /dev/nvidia0, /dev/nvidia-caps/nvidia-cap1, /dev/nvidia-caps/nvidia-cap2"}
	if !slices.Contains(right, want) {
		t.Errorf("no row %q", want)
	}
	profiles[second] = "3g.20gb"
	if rows := results(m.check(t.Context())); len(rows) != 1 || !strings.Contains(rows[0], `want "mig-3g.20gb"`) {
		t.Errorf("%q of a slice with another profile", rows)
	}
}

func TestCDINodes(t *testing.T) {
	directory := t.TempDir()
	const spec = `{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu",
"containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
"devices": [
{"name": "GPU-a", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/run/driver/dev/nvidia0"}]}},
{"name": "GPU-b", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}]}}]}`
	if err := os.WriteFile(filepath.Join(directory, "nvidia.yaml"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	directories := []string{filepath.Join(directory, "none"), directory}
	got, err := cdiNodes(directories, "nvidia.com/gpu=GPU-a")
	want := []node{{"/dev/nvidiactl", "/dev/nvidiactl"}, {"/run/driver/dev/nvidia0", "/dev/nvidia0"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if got, err := cdiNodes(directories, "nvidia.com/gpu=GPU-c"); err == nil {
		t.Errorf("%v of a GPU that no spec has", got)
	}
}
