package nvidiagpu

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

var block = regexp.MustCompile("(?ms)^```(yaml|text)\n(.*?)^```$")

// TestSamplePods tries the pods of docs/migrate-from-nvidia.md, which are those of NVIDIA's device
// plugin: each gets what the page says, on a node with the configuration that is last before that.
func TestSamplePods(t *testing.T) {
	page, err := os.ReadFile("../../docs/migrate-from-nvidia.md")
	if err != nil {
		t.Fatal(err)
	}
	config, tried := "", 0
	var pod corev1.Pod
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		language, text := m[1], m[2]
		switch {
		case language == "text":
			got := sample(t, config, pod)
			for line := range strings.Lines(text) {
				if !strings.Contains(got, strings.TrimSpace(line)) {
					t.Errorf("with\n%sthe page says\n%sand this is\n%s", config, text, got)
				}
			}
			tried++
		case strings.HasPrefix(text, "version: v1\n"):
			config = text
		default:
			pod = podOf(t, text)
		}
	}
	if tried < 8 {
		t.Errorf("the page has %d pods", tried)
	}
}

// The example's pods get replicas, each of a GPU, with the example's configuration.
func TestSharedGPUsExample(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("../../examples/shared-gpus", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var configs corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(read("config.yaml")), &configs); err != nil {
		t.Fatal(err)
	}
	notebook, packed := podOf(t, read("notebook.yaml")), podOf(t, read("packed.yaml"))
	got := sample(t, configs.Data["default"], notebook, notebook, packed, packed)
	// Two notebooks are apart, and what is to be packed joins the first.
	if want := "node: nvidia.com/gpu.shared 32\nmain: 0\nmain: 1\nmain: 0\nmain: 0\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, pod := range []corev1.Pod{notebook, packed} {
		if got := sample(t, configs.Data["whole"], pod); !strings.HasPrefix(got, "node: nvidia.com/gpu 8\n") {
			t.Errorf("%q", got)
		}
	}
}

// podOf reads a Pod, or the template of a Job.
func podOf(t *testing.T, text string) corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err == nil && pod.Kind == "Pod" {
		return pod
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(text), &job); err != nil || job.Kind != "Job" {
		t.Fatalf("%v in\n%s", err, text)
	}
	return corev1.Pod{Spec: job.Spec.Template.Spec}
}

// sample says what a node with the configuration advertises, and what each container of the pods gets there, one
// pod after the other.
func sample(t *testing.T, config string, pods ...corev1.Pod) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONFIG_FILE", file)
	t.Setenv("CDI_DIR", "")
	machine := fakenvml.New(fakenvml.Layouts["dgx-a100"])
	partition(t, machine, config)
	device := node.NewDevice(machine, func() error { return nil })
	info := types.NewNodeInfo()
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	if err := device.UpdateNodeInfo(info); err != nil {
		t.Fatal(err)
	}
	h := loaded(t)
	if err := h.AddNode("node", info); err != nil {
		t.Fatal(err)
	}
	var advertised []string
	for _, r := range slices.Sorted(maps.Keys(info.KubeAlloc)) {
		advertised = append(advertised, fmt.Sprintf("%s %d", r, info.KubeAlloc[r]))
	}
	out := "node: " + strings.Join(advertised, ", ") + "\n"
	for i, pod := range pods {
		out += place(t, h, device, fmt.Sprint("pod-", i), pod)
	}
	return out
}

// place has the pod have what it asks for on the node, and says what each container gets.
func place(t *testing.T, h *host.Host, device *node.Device, uid string, pod corev1.Pod) (out string) {
	t.Helper()
	input, err := assignment.Input(pod.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	asked := input.Clone()
	for _, c := range pod.Spec.Containers {
		asks := *types.NewContainerInfo()
		for name, n := range c.Resources.Limits {
			asks.KubeRequests[types.ResourceName(name)] = n.Value()
		}
		asked.RunningContainers[c.Name] = asks
	}
	given, err := h.Allocate(h.Node("node"), asked)
	if err != nil {
		return "pending: " + reasons(h.Fits(h.Node("node"), asked))
	}
	if err := h.Take("node", uid, given); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(given.RunningContainers)) {
		c := given.RunningContainers[name]
		_, _, env, err := device.Allocate(given, &c)
		if err != nil {
			t.Fatal(err)
		}
		out += name + ": " + fakenvml.Label(env["NVIDIA_VISIBLE_DEVICES"])
		if pipe, ok := env["CUDA_MPS_PIPE_DIRECTORY"]; ok {
			out += " CUDA_MPS_PIPE_DIRECTORY=" + pipe
		}
		out += "\n"
	}
	return out
}

// partition makes slices where the configuration has MIG: of all GPUs alike, or of the last one.
func partition(t *testing.T, machine *fakenvml.Machine, config string) {
	t.Helper()
	partitions := map[int][]string{}
	if strings.Contains(config, "single") {
		for i := range 8 {
			partitions[i] = slices.Repeat([]string{"1g.5gb"}, 7)
		}
	}
	if strings.Contains(config, "mixed") {
		partitions[7] = []string{"3g.20gb", "1g.5gb", "1g.5gb"}
	}
	for i, profiles := range partitions {
		if err := machine.Slice(i, profiles...); err != nil {
			t.Fatal(err)
		}
	}
}
