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

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/types"
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
	var pod corev1.PodSpec
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

// podOf reads a Pod, or the template of a Job.
func podOf(t *testing.T, text string) corev1.PodSpec {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err == nil && pod.Kind == "Pod" {
		return pod.Spec
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(text), &job); err != nil || job.Kind != "Job" {
		t.Fatalf("%v in\n%s", err, text)
	}
	return job.Spec.Template.Spec
}

// sample says what a node with the configuration advertises, and what each container gets there.
func sample(t *testing.T, config string, pod corev1.PodSpec) string {
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
	asked := types.NewPodInfo()
	for _, c := range pod.Containers {
		asks := *types.NewContainerInfo()
		for name, n := range c.Resources.Limits {
			asks.KubeRequests[types.ResourceName(name)] = n.Value()
		}
		asked.RunningContainers[c.Name] = asks
	}
	given, err := h.Allocate(h.Node("node"), asked)
	if err != nil {
		return out + "pending: " + reasons(h.Fits(h.Node("node"), asked))
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
