package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// loadPlugins builds this tree's plugins for the cluster's binaries, that of the
// nodes' GPUs with a fake of NVML, has all load them, and takes them away at the
// end. machines says what GPUs a node has: see test/fakegpu.
func (r *rig) loadPlugins(machines map[string]string) {
	r.Helper()
	build := filepath.Join(shared.BinDir(), "plugins", "e2e")
	files := map[string]string{
		"plugins/example/scheduler":   shared.SchedulerPluginDir(),
		"plugins/nvidiagpu/scheduler": shared.SchedulerPluginDir(),
		"plugins/example/device":      "",
		"test/fakegpu/device":         "",
	}
	r.Cleanup(func() {
		if r.Failed() {
			r.dump(context.Background())
		}
		r.deletePods() // a node advertises what its pods hold
		r.copyPlugins(build, nil, map[string]string{})
		r.restartAll()
		r.await("the nodes to have no GPUs", func() (bool, string) { return r.amounts("nvidia.com/gpu", 0, 0) })
		r.await("the nodes to have no labels of GPUs", func() (bool, string) {
			nodes, err := kube.CoreV1().Nodes().List(context.Background(),
				metav1.ListOptions{LabelSelector: "gpu.kubeslot.io/count"})
			r.check(err)
			return len(nodes.Items) == 0, fmt.Sprint(nodes.Items)
		})
	})
	for source := range files {
		cmd := exec.Command("go", "run", "./plugins/builder", "-binaries", shared.BinDir(), "-o", filepath.Join(build, pluginFile(source)), source)
		cmd.Dir = shared.Config().RepoRoot
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	r.copyPlugins(build, files, machines)
	r.restartAll()
}

func pluginFile(source string) string { return strings.ReplaceAll(source, "/", "-") + ".so" }

// copyPlugins fills the folders from which the binaries load plugins.
func (r *rig) copyPlugins(build string, files, machines map[string]string) {
	r.Helper()
	dirs := []string{shared.SchedulerPluginDir()}
	for _, n := range shared.Nodes() {
		dirs = append(dirs, n.DevicePluginDir)
		machine := filepath.Join(n.KubecriDir, "fakegpu")
		if text, ok := machines[n.Name]; ok {
			r.check(os.WriteFile(machine, []byte(text), 0o600))
		} else if err := os.Remove(machine); err != nil && !os.IsNotExist(err) {
			r.check(err)
		}
	}
	for _, dir := range dirs {
		old, err := filepath.Glob(filepath.Join(dir, "*.so"))
		r.check(err)
		for _, file := range old {
			r.check(os.Remove(file))
		}
		for source, to := range files {
			if (to != "") == (dir == shared.SchedulerPluginDir()) {
				data, err := os.ReadFile(filepath.Join(build, pluginFile(source)))
				r.check(err)
				r.check(os.WriteFile(filepath.Join(dir, pluginFile(source)), data, 0o600))
			}
		}
	}
}

func (r *rig) restartAll() {
	r.Helper()
	r.check(shared.Restart(cluster.Scheduler, ""))
	for _, n := range shared.Nodes() {
		r.check(shared.Restart(cluster.Kubecri, n.Name))
	}
}

// amounts tells whether the nodes have as much of the resource as is wanted, in
// the order of the nodes.
func (r *rig) amounts(name v1.ResourceName, want ...int64) (bool, string) {
	r.Helper()
	var got []int64
	for _, n := range shared.Nodes() {
		node, err := kube.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
		r.check(err)
		amount := node.Status.Allocatable[name]
		got = append(got, amount.Value())
	}
	return slices.Equal(got, want), fmt.Sprint(got)
}

// gpuPod asks for GPUs in its spec, and for what the annotation says.
func gpuPod(name string, gpus int64, annotation string) *v1.Pod {
	p := newPod(name, "", nil)
	amounts := v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: amounts, Limits: amounts}
	if annotation != "" {
		p.Annotations[assignment.Annotation] = annotation
	}
	return p
}

// withVariable has the pod's author set a variable.
func withVariable(p *v1.Pod, name, value string) *v1.Pod {
	p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: name, Value: value})
	return p
}

// gpus returns the node of a running pod, and the indexes of the GPUs that its
// container sees.
func (r *rig) gpus(name string) (node, indexes string) {
	r.Helper()
	p := r.awaitRunning(name)
	var words []string
	for _, uuid := range strings.Split(r.env(name)["NVIDIA_VISIBLE_DEVICES"], ",") {
		n, err := strconv.Atoi(uuid[strings.LastIndexByte(uuid, '-')+1:])
		if err != nil || uuid != fakenvml.UUID(n) {
			r.Fatalf("pod %s sees %q", name, uuid)
		}
		words = append(words, strconv.Itoa(n))
	}
	return p.Spec.NodeName, strings.Join(words, " ")
}

func (r *rig) wantGPUs(name, node, indexes string) {
	r.Helper()
	if n, i := r.gpus(name); n != node || i != indexes {
		r.Errorf("pod %s has GPUs %q of %s, want %q of %s", name, i, n, indexes, node)
	}
}

// GPUs by a .so scheduler plugin and a .so device plugin: what a pod asks for in
// its spec and its annotation is where its container then runs, with the GPUs that
// are connected best. The GPUs are fakes; everything else is real.
func TestGPUs(t *testing.T) {
	testAll(t, "builds plugins, and restarts what loads them")
	r := newRig(t)
	// Two NVLink cliques of four on one node, four PCIe pairs on the other.
	r.loadPlugins(map[string]string{nodeA: "two-cliques", nodeB: "pcie"})
	r.await("the nodes to have eight GPUs each", func() (bool, string) { return r.amounts("nvidia.com/gpu", 8, 8) })

	// One clique is better than two pairs.
	r.create(gpuPod("four", 4, ""))
	r.wantGPUs("four", nodeA, "0 1 2 3")
	r.create(gpuPod("three", 3, ""))
	r.wantGPUs("three", nodeA, "4 5 6")
	// One would be left on node-a: two that are connected are on node-b.
	r.create(withVariable(gpuPod("two", 2, ""), "NVIDIA_VISIBLE_DEVICES", "all"))
	r.wantGPUs("two", nodeB, "0 1")
	r.create(gpuPod("five", 5, ""))
	r.wantGPUs("five", nodeB, "2 4 5 6 7")

	// As README of KubeDevice has it: in the container's requests.
	r.create(gpuPod("any", 2, `{"runningcontainer":{"main":{"requests":{"gpu/gpu-generate-topology":1}}}}`))
	r.awaitPending("any", "Insufficient nvidia.com/gpu")
	r.delete("five")
	r.wantGPUs("any", nodeB, "2 3")
	r.delete("three")
	r.delete("any")

	// Named groups, from the annotation alone: one GPU of each of two cliques.
	p := newPod("named", nodeA, nil)
	p.Annotations[assignment.Annotation] = `{"runningcontainer":{"main":{"requests":{"gpu/gpu-generate-topology":0,
		"resource/group/gpugrp0/0/gpu/0/cards":1,"resource/group/gpugrp0/0/gpu/1/cards":1,"resource/group/gpugrp0/0/gpu/2/cards":1}}}}`
	r.create(p)
	if node, got := r.gpus("named"); node != nodeA || got != "5 6 7" {
		t.Errorf("three GPUs of one clique: %s of %s", got, node)
	}
	p = newPod("memory", nodeB, nil)
	p.Annotations[assignment.Annotation] = fmt.Sprintf(`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/memory":%d}}}}`, int64(fakenvml.Memory))
	r.create(p)
	r.wantGPUs("memory", nodeB, "2")
	p = newPod("large", "", nil)
	p.Annotations[assignment.Annotation] = fmt.Sprintf(`{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":1,"gpu/memory":%d}}}}`, int64(fakenvml.Memory)+1)
	r.create(p)
	r.awaitPending("large", "Insufficient gpu/memory")

	// The group scheduler's account is made again from the annotations.
	r.check(shared.Restart(cluster.Scheduler, ""))
	p = gpuPod("last", 1, "")
	p.Spec.NodeSelector = map[string]string{v1.LabelHostname: nodeA}
	r.create(p)
	r.wantGPUs("last", nodeA, "4")
	r.delete("last")

	// A GPU that nobody has is lost.
	r.check(os.WriteFile(filepath.Join(shared.Nodes()[0].KubecriDir, "fakegpu"), []byte("two-cliques\nlost 4\n"), 0o600))
	r.check(shared.Restart(cluster.Kubecri, nodeA))
	r.await("a GPU to leave", func() (bool, string) { return r.amounts("nvidia.com/gpu", 7, 8) })
	r.restartScheduler() // one that has read this
	p = p.DeepCopy()
	p.Name = "none"
	r.create(p)
	r.awaitPending("none", "nvidia.com/gpu")

	// CDI, where the runtime has a spec of the GPU.
	spec := "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n"
	for i := range 8 {
		spec += fmt.Sprintf("- name: %s\n  containerEdits:\n    env: [CDI_GPU_%d=yes]\n", fakenvml.UUID(i), i)
	}
	file := filepath.Join(shared.Nodes()[1].CDIDir, "nvidia.yaml")
	r.check(os.WriteFile(file, []byte(spec), 0o644))
	t.Cleanup(func() { os.Remove(file) })
	p = gpuPod("cdi", 2, "")
	p.Spec.NodeSelector = map[string]string{v1.LabelHostname: nodeB}
	r.create(p)
	r.awaitRunning("cdi")
	if env := r.env("cdi"); env["CDI_GPU_4"] != "yes" || env["CDI_GPU_5"] != "yes" || env["CDI_GPU_0"] != "" || env["NVIDIA_VISIBLE_DEVICES"] != "void" {
		t.Errorf("GPUs by CDI: %v", env)
	}

	// GPUs are not had by asking the runtime for them, past the scheduler.
	r.create(withVariable(newPod("asks", nodeA, nil), "NVIDIA_VISIBLE_DEVICES", "all"))
	r.create(newPod("silent", nodeB, nil))
	privileged := withVariable(newPod("privileged", nodeA, nil), "NVIDIA_VISIBLE_DEVICES", "all")
	yes := true
	privileged.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: &yes}
	r.create(privileged)
	for name, want := range map[string]string{"asks": "void", "privileged": "all"} {
		r.awaitRunning(name)
		if got := r.env(name)["NVIDIA_VISIBLE_DEVICES"]; got != want {
			t.Errorf("pod %s has NVIDIA_VISIBLE_DEVICES=%q, want %q", name, got, want)
		}
	}
	r.awaitRunning("silent")
	if got := r.env("silent")["NVIDIA_VISIBLE_DEVICES"]; got != "void" && got != "" { // in NRI mode nothing needs to be set
		t.Errorf("a pod that asks for nothing has NVIDIA_VISIBLE_DEVICES=%q", got)
	}

	// Two plugins in one pod, each with its own.
	p = gpuPod("both", 1, `{"runningcontainer":{"main":{"requests":{"example.com/widget":2}}}}`)
	p.Spec.NodeSelector = map[string]string{v1.LabelHostname: nodeB}
	r.create(p)
	r.awaitRunning("both")
	if env := r.env("both"); env["CDI_GPU_3"] != "yes" || env["WIDGETS"] != "1-2,1-3" {
		t.Errorf("a GPU and widgets: %v", env)
	}
}
