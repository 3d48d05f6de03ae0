package nvidiagpu

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/cockroachdb/datadriven"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/schedule"
	"github.com/kubeslot/kubeslot/plugins/plugintest/overgrpc"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// TestScenarios runs the stories in testdata: both halves of the plugin, driven as
// the scheduler and kubecri drive them, on fake machines. Commands:
//
//	node                 start anew with a node that says it has this: see givenNode.
//	                     With again, the node says so now
//	machine layout=l     start anew with a node of this layout of fakenvml; prints
//	                     its GPUs' indexes as NUMA node(clique …) …
//	schedule pod=p       lines "[init] container gpu=2 nvidia.com/gpu=2 gpu/memory=1 …":
//	                     gpu and spec:… are spec.resources, the others are the
//	                     annotation's requests; "pod …" has those of the pod as a whole. Prints
//	                     the GPUs' indexes that each container was told
//	fits pod=p           the same, but only the score
//	remove pod=p         the pod is gone
//	lose gpu=i, back gpu=i, mig gpu=i, xid gpu=i number=n
//	                     something happens to a GPU, and the node tells
//	used                 the indexes of the GPUs in use
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{newHost: loaded, hosted: func(_ testing.TB, d device.Device) device.Device { return d }}
		datadriven.RunTest(t, path, s.run)
	})
}

// onlyLoaded are the stories that are others over gRPC, and why: see docs/plugins.md.
var onlyLoaded = map[string]string{
	"renamed.txt":        "TakePodResources is not called, which finds GPUs by the name that they have now",
	"renamed_slices.txt": "the same",
	"negative.txt":       "translated requests below zero are refused before the group scheduler sees them",
}

// The stories are the same with both halves over gRPC, but for those of onlyLoaded.
func TestScenariosOverGRPC(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if why := onlyLoaded[filepath.Base(path)]; why != "" {
			t.Log(why)
			return
		}
		s := &story{newHost: func(t *testing.T) *host.Host {
			return overgrpc.Scheduler(t, schedule.Scheduler{}, "nvidia.com/*", "gpu/*",
				"resource/group/gpu*")
		}, hosted: overgrpc.Device}
		datadriven.RunTest(t, path, s.run)
	})
}

// loaded is a host with the plugin in its process.
func loaded(t *testing.T) *host.Host {
	h, err := host.New([]devicescheduler.DeviceScheduler{schedule.Scheduler{}}, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

type story struct {
	newHost func(*testing.T) *host.Host
	hosted  func(testing.TB, device.Device) device.Device // as kubecri has it
	machine *fakenvml.Machine
	device  device.Device
	host    *host.Host
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	pod, index, number, layout := "", 0, 79, ""
	d.MaybeScanArgs(t, "pod", &pod)
	d.MaybeScanArgs(t, "gpu", &index)
	d.MaybeScanArgs(t, "number", &number)
	d.MaybeScanArgs(t, "layout", &layout)
	switch d.Cmd {
	case "node":
		s.machine, s.device = nil, nil
		if !d.HasArg("again") {
			s.host = s.newHost(t)
		}
		if err := s.host.AddNode("node", givenNode(t, d.Input)); err != nil {
			t.Fatal(err)
		}
		return ""
	case "machine":
		l, ok := fakenvml.Layouts[layout]
		if !ok {
			d.Fatalf(t, "no layout %q", layout)
		}
		s.machine = fakenvml.New(l)
		s.device = s.hosted(t, node.NewDevice(s.machine, func() error { return nil }))
		if err := s.device.Start(); err != nil {
			t.Fatal(err)
		}
		s.host = s.newHost(t)
		return s.tell(t)
	case "lose", "back":
		s.machine.Lose(index, d.Cmd == "lose")
		return s.tell(t)
	case "mig":
		s.machine.Partition(index, true)
		return s.tell(t)
	case "xid":
		s.machine.Report(index, nvml.EventTypeXidCriticalError, uint64(number))
		return s.tell(t)
	case "schedule":
		return s.schedule(t, pod, parsePod(t, pod, d.Input))
	case "fits":
		fit := s.host.Fits(s.host.Node("node"), parsePod(t, pod, d.Input))
		return fmt.Sprintf("%.3f\n", fit.Score) + reasons(fit)
	case "remove":
		if err := s.host.Return("node", pod); err != nil {
			return err.Error() + "\n"
		}
		return ""
	case "used":
		var used []string
		info := s.host.Node("node").Info()
		if s.device == nil {
			for r, n := range info.Used {
				used = append(used, fmt.Sprintf("%s %d\n", strings.TrimPrefix(string(r), types.DeviceGroupPrefix+"/"),
					n))
			}
			slices.Sort(used)
			return strings.Join(used, "")
		}
		for _, g := range gpu.Free(info.Allocatable, nil, gpu.DefaultKind) {
			if info.Used[g.Leaf(gpu.Cards)] > 0 {
				used = append(used, g.UUID)
			}
		}
		slices.Sort(used)
		return indexes(used) + "\n"
	}
	d.Fatalf(t, "no command %q", d.Cmd)
	return ""
}

// tell has the node say what it has, and the scheduler hear it.
func (s *story) tell(t *testing.T) string {
	info := types.NewNodeInfo()
	if err := s.device.UpdateNodeInfo(info); err != nil {
		return err.Error() + "\n"
	}
	if err := s.host.AddNode("node", info); err != nil {
		t.Fatal(err)
	}
	free := gpu.Free(info.Allocatable, nil, gpu.DefaultKind)
	if n, ok := info.KubeAlloc[gpu.Resource]; ok != (len(info.Allocatable) > 0) || int(n) != len(free) {
		if len(free) > 0 {
			t.Errorf("nvidia.com/gpu: %d (%v) of %d GPUs", n, ok, len(free))
		}
	}
	groups := map[string]map[string][]string{}
	for _, g := range free {
		if groups[g.Node] == nil {
			groups[g.Node] = map[string][]string{}
		}
		groups[g.Node][g.Clique] = append(groups[g.Node][g.Clique], g.UUID)
	}
	var nodes []string
	for _, n := range slices.Sorted(maps.Keys(groups)) {
		var cliques []string
		for _, c := range slices.Sorted(maps.Keys(groups[n])) {
			cliques = append(cliques, c+": "+indexes(groups[n][c]))
		}
		nodes = append(nodes, n+"("+strings.Join(cliques, ", ")+")")
	}
	return strings.Join(append(nodes, ""), "\n")
}

func (s *story) schedule(t *testing.T, uid string, pod *types.PodInfo) string {
	fit := s.host.Fits(s.host.Node("node"), pod)
	got, err := s.host.Allocate(s.host.Node("node"), pod)
	if fit.OK != (err == nil) {
		t.Errorf("pod %s fits: %v, and allocation says: %v", uid, fit, err)
	}
	if err != nil {
		return reasons(fit)
	}
	if err := s.host.Take("node", uid, got); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, containers := range []map[string]types.ContainerInfo{got.InitContainers, got.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			c := containers[name]
			if s.device == nil {
				fmt.Fprintf(&out, "%s: %s\n", name, given(c))
				continue
			}
			_, _, env, err := s.device.Allocate(got, &c)
			fmt.Fprintf(&out, "%s: ", name)
			switch {
			case err != nil:
				fmt.Fprintln(&out, strings.ReplaceAll(err.Error(), "GPU-fa4e0000-0000-4000-8000-00000000000", "#"))
			case len(env) == 0:
				fmt.Fprintln(&out, "none")
			default:
				fmt.Fprintln(&out, indexes(strings.Split(env["NVIDIA_VISIBLE_DEVICES"], ",")))
			}
		}
	}
	return out.String()
}

// reasons says why the pod does not fit. A negative amount, which gRPC does not have, is 0.
func reasons(fit host.Fit) string {
	out := ""
	for _, r := range fit.Reasons {
		out += fmt.Sprintf("%s (%d asked for, %d used of %d)\n", r.Text, max(r.Requested, 0), r.Used, r.Capacity)
	}
	return out
}

// indexes returns the GPUs' indexes, which their UUIDs say.
func indexes(uuids []string) string {
	var words []string
	for _, u := range uuids {
		n, err := strconv.Atoi(u[strings.LastIndexByte(u, '-')+1:])
		if err != nil {
			return err.Error()
		}
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " ")
}

func parsePod(t *testing.T, name, input string) *types.PodInfo {
	pod := types.NewPodInfo()
	pod.Name = name
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		words := strings.Fields(line)
		containers := pod.RunningContainers
		if words[0] == "init" {
			containers, words = pod.InitContainers, words[1:]
		}
		c := *types.NewContainerInfo()
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(line, err)
			}
			switch {
			case words[0] == "pod":
				pod.Requests[types.ResourceName(key)] = n
			case key == "gpu":
				c.KubeRequests[gpu.Resource] = n
			case strings.HasPrefix(key, "spec:"):
				c.KubeRequests[types.ResourceName(key[len("spec:"):])] = n
			default:
				c.Requests[types.ResourceName(key)] = n
			}
		}
		if words[0] != "pod" {
			containers[words[0]] = c
		}
	}
	return pod
}
