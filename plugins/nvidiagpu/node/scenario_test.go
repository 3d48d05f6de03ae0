package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/cockroachdb/datadriven"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// TestScenarios runs the stories in testdata: what a node advertises and containers get, on fake
// machines. GPUs are named by their index, slices as <GPU>:<start>. Commands:
//
//	machine layout=l               start on a machine of fakenvml; lines VARIABLE=value, and a line
//	                               "file:" before a config file. Prints as look does
//	restart                        start anew on the same machine
//	look                           read the GPUs; prints what of each kind is advertised, and what not
//	slice gpu=i, off gpu=i         partition the GPU anew into the profiles of the input; MIG mode off
//	lose gpu=i, back gpu=i         NVML does not answer for the GPU, or does again [slice=k]
//	xid gpu=i number=n [slice=k]   it reports an XID, which is of its k-th slice
//	ecc gpu=i                      it reports an uncorrectable memory error
//	reset gpu=i                    its counts are 0 again
//	recovery gpu=i action=n        the driver says what is to be done about it
//	allocate                       a container was assigned the leaves of the input, as "0:1 mig-1g.5gb"
//	lost                           what is lost of the leaves of the input
func TestScenarios(t *testing.T) {
	eachHost(t, func(t *testing.T, host hosting) {
		datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
			t.Parallel()
			s := &story{host: host}
			datadriven.RunTest(t, path, s.run)
		})
	})
}

// onlyLoaded are the commands that are not run over gRPC, and why: see docs/plugins.md.
var onlyLoaded = map[string]string{
	"lost": "the protocol has no device.LossReporter",
}

type story struct {
	host    hosting
	machine *fakenvml.Machine
	device  *Device
	hosted  device.Device // device, as its host has it
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	var layout string
	var index, number, action int
	part := -1
	if why := onlyLoaded[d.Cmd]; why != "" && s.hosted != device.Device(s.device) {
		t.Log(d.Pos, why)
		return d.Expected
	}
	d.MaybeScanArgs(t, "layout", &layout)
	d.MaybeScanArgs(t, "gpu", &index)
	d.MaybeScanArgs(t, "number", &number)
	d.MaybeScanArgs(t, "action", &action)
	d.MaybeScanArgs(t, "slice", &part)
	switch d.Cmd {
	case "machine":
		l, ok := fakenvml.Layouts[layout]
		if !ok {
			t.Fatalf("no layout %q", layout)
		}
		s.machine = fakenvml.New(l)
		return s.start(t, d.Input)
	case "restart":
		return s.start(t, d.Input)
	case "look":
		return s.look(t)
	case "slice":
		if err := s.machine.Slice(index, strings.Fields(d.Input)...); err != nil {
			return err.Error() + "\n"
		}
	case "off":
		s.machine.Partition(index, false)
	case "lose", "back":
		if part >= 0 {
			s.machine.LoseSlice(index, part, d.Cmd == "lose")
		} else {
			s.machine.Lose(index, d.Cmd == "lose")
		}
	case "xid":
		if part >= 0 {
			s.machine.ReportSlice(index, part, uint64(number))
		} else {
			s.machine.Report(index, nvml.EventTypeXidCriticalError, uint64(number))
		}
	case "ecc":
		s.machine.Report(index, nvml.EventTypeDoubleBitEccError, 0)
	case "reset":
		s.machine.Reset(index)
	case "recovery":
		s.machine.Recovery(index, nvml.DeviceGpuRecoveryAction(action))
	case "allocate":
		return s.allocate(d.Input)
	case "lost":
		return s.lost(d.Input)
	default:
		d.Fatalf(t, "no command %q", d.Cmd)
	}
	return ""
}

func (s *story) start(t *testing.T, input string) string {
	s.device = NewDevice(s.machine, noLoad)
	s.device.root, s.device.cdiFolders = withDriver(t), nil
	variables, file, _ := strings.Cut(input, "file:\n")
	env := map[string]string{}
	for _, line := range strings.Fields(variables) {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	if file != "" {
		env["CONFIG_FILE"] = filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(env["CONFIG_FILE"], []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.device.getenv = func(name string) string { return env[name] }
	s.hosted = s.host(t, s.device)
	if err := s.hosted.Start(); err != nil {
		return strings.ReplaceAll(err.Error(), filepath.Dir(env["CONFIG_FILE"])+"/", "") + "\n"
	}
	return s.look(t)
}

// withDriver has the files of a node with a driver.
func withDriver(t *testing.T) string {
	root := t.TempDir()
	minors := "config 1\nmonitor 2\n" +
		"gpu1/gi0/access 3\ngpu1/gi0/ci0/access 4\ngpu1/gi1/access 5\ngpu1/gi1/ci0/access 6\n"
	for path, text := range map[string]string{"/dev/nvidiactl": "", "/dev/nvidia-uvm": "", migMinors: minors} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func (s *story) look(t *testing.T) string {
	info := types.NewNodeInfo()
	if err := s.hosted.UpdateNodeInfo(info); err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(info.KubeAlloc)) {
		kind, _ := gpu.Kind(name)
		fmt.Fprintf(&out, "%s %d:", kind, info.KubeAlloc[name])
		var sum int64
		for _, g := range gpu.Free(info.Allocatable, nil, kind) {
			sum += g.Count
			fmt.Fprintf(&out, " %s", fakenvml.Label(g.ID()))
			if g.Count > 1 {
				fmt.Fprintf(&out, "×%d", g.Count)
			}
			fmt.Fprintf(&out, "(%dMi)", g.Memory>>20)
		}
		if sum != info.KubeAlloc[name] {
			t.Errorf("%s: %d in node.status, %d in groups", kind, info.KubeAlloc[name], sum)
		}
		if info.Allocatable[gpu.FailAboveOne(kind)] > 0 {
			out.WriteString(" one a container")
		}
		out.WriteString("\n")
	}
	for _, m := range s.device.out {
		fmt.Fprintf(&out, "not %s\n", label(m.gpu+": "+m.why))
	}
	return out.String()
}

var uuid = regexp.MustCompile(`(GPU|MIG)-[0-9a-f-]+`)

// label replaces UUIDs in the text.
func label(text string) string { return uuid.ReplaceAllStringFunc(text, fakenvml.Label) }

// leaves returns the leaves of the lines.
func (s *story) leaves(input string) []types.ResourceName {
	var leaves []types.ResourceName
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		leaves = append(leaves, s.leaf(words[0], words[1]))
	}
	return leaves
}

// leaf returns that of the GPU or slice with the label; slices that are gone are known by their kind.
func (s *story) leaf(id, kind string) types.ResourceName {
	parent, start, part := strings.Cut(id, ":")
	var index, at int
	fmt.Sscan(parent, &index)
	g := gpu.GPU{UUID: fakenvml.UUID(index), Node: "0", Clique: "0"}
	if part {
		fmt.Sscan(start, &at)
		g.Slice = fakenvml.SliceUUID(index, 0, uint32(at)) // one that never was
		for p := range nvml.GPU_INSTANCE_PROFILE_COUNT {
			if uuid := fakenvml.SliceUUID(index, p, uint32(at)); s.has(uuid) {
				g.Slice = uuid
			}
		}
	}
	return g.Leaf(gpu.Leaf(kind))
}

func (s *story) has(uuid string) bool {
	g, _ := find(s.device.gpus, uuid)
	return g != nil || slices.ContainsFunc(s.device.broken, func(m missing) bool { return m.gpu == uuid })
}

func (s *story) allocate(input string) string {
	c := types.NewContainerInfo()
	for i, from := range s.leaves(input) {
		got, _ := gpu.ParseName(from)
		got.Node, got.Clique, got.GPU = "0", "0", fmt.Sprint(i)
		c.AllocateFrom[got.Resource()] = from
	}
	mounts, nodes, env, err := s.hosted.Allocate(nil, c)
	if err != nil {
		return label(err.Error()) + "\n"
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&out, "%s=%s\n", name, label(env[name]))
	}
	for _, m := range mounts {
		fmt.Fprintf(&out, "%s at %s\n", m.HostPath, m.ContainerPath)
	}
	for _, n := range nodes {
		fmt.Fprintln(&out, n)
	}
	return out.String()
}

func (s *story) lost(input string) string {
	var out strings.Builder
	held := s.leaves(input)
	lost := s.device.Lost(held)
	for _, leaf := range held {
		if why, ok := lost[leaf]; ok {
			fmt.Fprintln(&out, label(why))
		}
	}
	return out.String()
}
