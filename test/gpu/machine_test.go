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

// onMachine runs the test once more, in a mount namespace in which there are device nodes as of GPUs: it returns true
// there. They are /dev/null.
func onMachine(t *testing.T, gpus int) bool {
	t.Helper()
	const variable = "TEST_GPU_ON_MACHINE"
	if staging := os.Getenv(variable); staging != "" {
		c := container{Staging: staging}
		for _, name := range control {
			c.Nodes = append(c.Nodes, node{"/dev/null", "/dev/" + name})
		}
		for i := range gpus {
			c.Nodes = append(c.Nodes, node{"/dev/null", fmt.Sprintf("/dev/nvidia%d", i)})
		}
		if err := c.mountDevices(); err != nil {
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

// fakeSMI answers as nvidia-smi on a machine with two GPUs of package fakenvml.
func fakeSMI(_ context.Context, args ...string) ([]byte, error) {
	switch strings.Join(args, " ") {
	case "-q -x":
		text := "<nvidia_smi_log>"
		for i := range 2 {
			text += fmt.Sprintf("<gpu><uuid>%s</uuid><minor_number>%d</minor_number><mig_mode><current_mig>Disabled"+
				"</current_mig></mig_mode><pci><pci_bus_id>00000000:%02X:00.0</pci_bus_id></pci><fb_memory_usage>"+
				"<total>40960 MiB</total></fb_memory_usage></gpu>", fakenvml.UUID(i), i, i+1)
		}
		return []byte(text + "</nvidia_smi_log>"), nil
	case "topo -m":
		return []byte("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n"), nil
	case "topo -mp":
		return []byte("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n"), nil
	}
	return nil, fmt.Errorf("nvidia-smi has no %q", args)
}

// fake is a machine with two GPUs.
func fake(cuda string) machine {
	layout := fakenvml.Layouts["two-cliques"]
	layout.GPUs = 2
	return machine{
		lib: fakenvml.New(layout), load: func() error { return nil },
		smi: fakeSMI, cuda: cuda, size: 1 << 20, dev: "/dev",
	}
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
	if !onMachine(t, 2) {
		return
	}
	right := fake(fakeCUDA(t)).check(t.Context())
	t.Logf("\n%s", right)
	if rows := results(right); len(rows) > 0 {
		t.Errorf("%q", rows)
	}
	if want := 18; len(right) != want {
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
				m.smi = func(ctx context.Context, args ...string) ([]byte, error) {
					if args[0] == "topo" {
						return nil, errors.New("not supported here")
					}
					return fakeSMI(ctx, args...)
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
	if !onMachine(t, 3) {
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
