package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const (
	slice3g, slice1g v1.ResourceName = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb"
	sharedGPU        v1.ResourceName = "nvidia.com/gpu.shared"
)

// gpuConfigs are in the format of NVIDIA's device plugin.
var gpuConfigs = map[string]string{
	"default": "version: v1\n",
	"mixed":   "version: v1\nflags: {migStrategy: mixed}\n",
	"single":  "version: v1\nflags: {migStrategy: single}\n",
	"shared": "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n" +
		"    failRequestsGreaterThanOne: true\n    resources: [{name: nvidia.com/gpu, replicas: 2}]\n",
	"bad": "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 0}]}}\n",
}

// configureGPUs gives the nodes a directory of configurations, and has their plugins look every second.
func (r *rig) configureGPUs(byNode map[string]string) {
	r.Helper()
	for _, n := range shared.Nodes() {
		dir := filepath.Join(n.KubecriDir, "gpu-config") // see test/fakegpu
		r.check(os.MkdirAll(dir, 0o700))
		r.Cleanup(func() { r.check(os.RemoveAll(dir)) })
		for name, text := range gpuConfigs {
			r.check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		r.configureNode(n.Name, byNode[n.Name])
		r.Cleanup(func() { r.labelNode(n.Name, `{"nvidia.com/device-plugin.config":null}`) })
	}
}

func (r *rig) configureNode(node, config string) {
	r.Helper()
	r.labelNode(node, fmt.Sprintf(`{"nvidia.com/device-plugin.config":%q}`, config))
}

func (r *rig) labelNode(node, labels string) {
	r.Helper()
	_, err := kube.CoreV1().Nodes().Patch(context.Background(), node, apitypes.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":%s}}`, labels), metav1.PatchOptions{})
	r.check(err)
}

// awaitGPUs waits until the nodes advertise so much of the resource.
func (r *rig) awaitGPUs(name v1.ResourceName, want ...int64) {
	r.Helper()
	r.await(fmt.Sprintf("%d of %s", want, name), func() (bool, string) { return r.amounts(name, want...) })
}

// awaitLabels waits until the Node has the labels.
func (r *rig) awaitLabels(node string, want map[string]string) {
	r.Helper()
	r.await(fmt.Sprintf("labels %v of node %s", want, node), func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		r.check(err)
		for key, value := range want {
			if n.Labels[key] != value {
				return false, fmt.Sprint(n.Labels, n.Annotations)
			}
		}
		return true, ""
	})
}

// partition has the node's fake GPUs be so: see test/fakegpu.
func (r *rig) partition(node int, machine string) {
	r.Helper()
	file := filepath.Join(shared.Nodes()[node].KubecriDir, "fakegpu")
	r.check(os.WriteFile(file+".new", []byte(machine), 0o600))
	r.check(os.Rename(file+".new", file))
}

// asksGPUs is a pod that asks for so many of each.
func asksGPUs(name, node string, amounts map[v1.ResourceName]int64) *v1.Pod {
	p := newPod(name, node, nil)
	list := v1.ResourceList{}
	for resourceName, n := range amounts {
		list[resourceName] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return p
}

// visible are the GPUs and slices of a pod that runs, as fakenvml.Label has them.
func (r *rig) visible(name string) string {
	r.Helper()
	r.awaitRunning(name)
	var labels []string
	for uuid := range strings.SplitSeq(r.env(name)["NVIDIA_VISIBLE_DEVICES"], ",") {
		labels = append(labels, fakenvml.Label(uuid))
	}
	return strings.Join(labels, " ")
}

// MIG slices, each under its own name: what a pod asks for is what it gets, the Node's labels say what
// there is, and GPUs that are partitioned anew under pods leave these running.
func TestGPUSlices(t *testing.T) {
	testAll(t, "builds plugins, and restarts what loads them")
	r := newRig(t)
	r.configureGPUs(map[string]string{nodeA: "mixed", nodeB: "default"})
	const machine = "dgx-a100\nmig 0 3g.20gb 3g.20gb\nmig 1 1g.5gb 2g.10gb\n"
	r.loadPlugins(map[string]string{nodeA: machine, nodeB: "none"})
	r.check(shared.SetKubecriArgs(r.ctx, nodeA, "--advertise-interval=1s"))
	t.Cleanup(func() { r.check(shared.SetKubecriArgs(context.Background(), nodeA)) })
	r.awaitGPUs(slice3g, 2, 0)
	r.awaitGPUs(slice1g, 1, 0)
	r.awaitGPUs("nvidia.com/gpu", 6, 0)
	r.awaitLabels(nodeA, map[string]string{"gpu.kubeslot.io/count": "8", "gpu.kubeslot.io/mig.strategy": "mixed"})

	r.create(asksGPUs("large", "", map[v1.ResourceName]int64{slice3g: 1}))
	large := r.visible("large")
	if large != "0:0" && large != "0:4" {
		t.Errorf("a slice 3g.20gb: %s", large)
	}
	r.create(asksGPUs("small", "", map[v1.ResourceName]int64{slice1g: 1, "nvidia.com/mig-2g.10gb": 1}))
	if got := strings.Fields(r.visible("small")); len(got) != 2 || got[0] == got[1] || got[0][:2] != "1:" ||
		got[1][:2] != "1:" {
		t.Errorf("two slices of GPU 1: %v", got)
	}
	r.create(asksGPUs("whole", "", map[v1.ResourceName]int64{"nvidia.com/gpu": 1}))
	whole := r.visible("whole")
	if !slices.Contains([]string{"2", "3", "4", "5", "6", "7"}, whole) {
		t.Errorf("a whole GPU: %s", whole)
	}
	r.create(asksGPUs("both", "", map[v1.ResourceName]int64{"nvidia.com/gpu": 1, slice3g: 1}))
	r.awaitPending("both", `"main"`, "nvidia.com/gpu", string(slice3g))

	// A configuration that cannot be: the node has what it had, and says why.
	r.configureNode(nodeA, "bad")
	r.awaitReadyz(cluster.Kubecri, nodeA, "device-plugins", "replicas")
	r.create(asksGPUs("meanwhile", nodeA, map[v1.ResourceName]int64{slice3g: 1}))
	r.visible("meanwhile")
	r.delete("meanwhile")
	r.configureNode(nodeA, "mixed")

	// GPU 0 is partitioned otherwise, and so is one that was whole: a slice that a pod holds is destroyed.
	least := r.leastAllocatable(nodeA, slice3g)
	free := "7"
	if whole == free {
		free = "6"
	}
	r.partition(0, strings.Replace(machine, "mig 0 3g.20gb 3g.20gb", "mig 0 1g.5gb 1g.5gb\nmig "+free+" 7g.40gb", 1))
	r.awaitEvent("large", "DeviceLost", "MIG-")
	r.awaitGPUs(slice1g, 3, 0)
	r.awaitGPUs("nvidia.com/mig-7g.40gb", 1, 0)
	r.create(asksGPUs("anew", "", map[v1.ResourceName]int64{"nvidia.com/mig-7g.40gb": 1}))
	if got := r.visible("anew"); got != free+":0" {
		t.Errorf("a slice that was made meanwhile: %s", got)
	}
	// For 30 s after its start kubecri keeps what the node said before, since there may be plugins to come.
	r.await("the destroyed slices to leave the annotation", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
		r.check(err)
		text := n.Annotations[assignment.Annotation]
		return !strings.Contains(text, "mig-3g.20gb"), text
	})
	r.create(asksGPUs("late", "", map[v1.ResourceName]int64{slice3g: 1}))
	r.awaitPending("late", string(slice3g))
	r.awaitGPUs(slice3g, 1, 0) // which pod large holds
	r.check(shared.Restart(cluster.Kubelet, nodeA))
	r.create(newPod("after", nodeA, nil)) // a kubelet that runs a new pod has looked at its old ones
	r.awaitRunning("after")
	for _, name := range []string{"large", "small", "whole", "anew"} {
		if p := r.pod(name); p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s is %s (%s), want it untouched", name, p.Status.Phase, p.Status.Message)
		}
	}
	events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{FieldSelector: "reason=DeviceLost"})
	r.check(err)
	for _, e := range events.Items {
		if e.InvolvedObject.Name != "large" || e.Count > 1 {
			t.Errorf("%d events of pod %s: %s", e.Count, e.InvolvedObject.Name, e.Message)
		}
	}
	if n := least(); n < 1 {
		t.Errorf("the node advertised %d of %s, and a pod held 1", n, slice3g)
	}
	r.delete("late")
	r.delete("large")
	r.awaitGPUs(slice3g, 0, 0)
	r.deletePods()
	r.repartitionUnderLoad()
}

// repartitionUnderLoad partitions node A's GPUs 4 and 5 anew again and again while pods with slices come and go: no
// container has a slice that its pod was not assigned, or that another one has, and none is lost.
func (r *rig) repartitionUnderLoad() {
	r.Helper()
	machines := [2]string{"dgx-a100\nmig 4 1g.5gb 1g.5gb 1g.5gb\nmig 5 2g.10gb 2g.10gb\n",
		"dgx-a100\nmig 4 2g.10gb 2g.10gb\nmig 5 1g.5gb 1g.5gb 1g.5gb\n"}
	slice2g := v1.ResourceName("nvidia.com/mig-2g.10gb")
	partition := func(i int) {
		r.partition(0, machines[i%2])
		small := fakenvml.SliceUUID(4+i%2, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 0)
		large := fakenvml.SliceUUID(5-i%2, nvml.GPU_INSTANCE_PROFILE_2_SLICE, 0)
		r.await("the slices to be advertised", func() (bool, string) {
			n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
			r.check(err)
			text := n.Annotations[assignment.Annotation]
			return strings.Contains(text, small) && strings.Contains(text, large), text
		})
	}
	partition(0)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	l := r.startPluginLoad(ctx, 1, func(random *rand.Rand, name string) *v1.Pod {
		return asksGPUs(name, "", map[v1.ResourceName]int64{[]v1.ResourceName{slice1g, slice2g}[random.IntN(2)]: 1})
	}, func(from types.ResourceName) string {
		if name, ok := gpu.ParseName(from); ok && name.Leaf != gpu.Bytes {
			return gpu.GPU{UUID: name.GPU, Slice: name.Slice}.ID()
		}
		return ""
	})
	for i := 1; i <= 24; i++ {
		partition(i)
	}
	cancel()
	l.finish()
	r.deletePods()
	r.awaitGPUs(slice1g, 3, 0)
	r.awaitGPUs(slice2g, 2, 0)
	held := map[string]bool{}
	for i, name := range []v1.ResourceName{slice1g, slice1g, slice1g, slice2g, slice2g} {
		pod := fmt.Sprint("last-", i)
		r.create(asksGPUs(pod, "", map[v1.ResourceName]int64{name: 1}))
		held[r.visible(pod)] = true
	}
	if len(held) != 5 {
		r.Errorf("of 5 slices the last pods have %v", held)
	}
}

// leastAllocatable watches what the node advertises of the resource. What it returns says what the least was.
func (r *rig) leastAllocatable(node string, name v1.ResourceName) func() int64 {
	r.Helper()
	w, err := kube.CoreV1().Nodes().Watch(r.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	r.check(err)
	least := make(chan int64, 1)
	go func() {
		n := int64(1 << 62)
		for e := range w.ResultChan() {
			if node, ok := e.Object.(*v1.Node); ok {
				q := node.Status.Allocatable[name]
				n = min(n, q.Value())
			}
		}
		least <- n
	}()
	return func() int64 { w.Stop(); return <-least }
}

// Slices that are called GPUs, and GPUs that containers share, by the label of the Node.
func TestGPUsByConfiguration(t *testing.T) {
	testAll(t, "builds plugins, and restarts what loads them")
	r := newRig(t)
	r.configureGPUs(map[string]string{nodeA: "single", nodeB: "shared"})
	r.loadPlugins(map[string]string{nodeA: "mig-alike", nodeB: "pcie"})
	r.check(shared.SetKubecriArgs(r.ctx, nodeB, "--advertise-interval=1s"))
	t.Cleanup(func() { r.check(shared.SetKubecriArgs(context.Background(), nodeB)) })
	r.awaitGPUs("nvidia.com/gpu", 4, 0)
	r.awaitGPUs(sharedGPU, 0, 16)
	r.awaitLabels(nodeA, map[string]string{"gpu.kubeslot.io/count": "4", "gpu.kubeslot.io/mig.strategy": "single",
		config.Label: "single"})
	r.awaitLabels(nodeB, map[string]string{"gpu.kubeslot.io/replicas": "2",
		"gpu.kubeslot.io/sharing-strategy": "time-slicing"})

	r.create(asksGPUs("slice", "", map[v1.ResourceName]int64{"nvidia.com/gpu": 1}))
	if got := r.visible("slice"); !strings.Contains(got, ":") {
		t.Errorf("a slice that is called a GPU: %s", got)
	}
	one := map[v1.ResourceName]int64{sharedGPU: 1}
	r.create(asksGPUs("first", "", one))
	first := r.visible("first")
	r.create(asksGPUs("second", "", one))
	if second := r.visible("second"); second == first {
		t.Errorf("two replicas are both of GPU %s, where others are free", first)
	}
	p := asksGPUs("packed", "", one)
	p.Annotations[assignment.Annotation] = `{"runningcontainer":{"main":{"requests":{"gpu/replicas-pack":1}}}}`
	r.create(p)
	if packed := r.visible("packed"); packed != first && packed != r.visible("second") {
		t.Errorf("a replica that is to be packed is of GPU %s", packed)
	}
	r.create(asksGPUs("two", "", map[v1.ResourceName]int64{sharedGPU: 2}))
	r.awaitPending("two", string(sharedGPU))

	// The Node's label is changed: without a restart the GPUs are whole ones, but for what pods hold.
	r.configureNode(nodeB, "default")
	r.awaitGPUs("nvidia.com/gpu", 4, 8)
	r.awaitGPUs(sharedGPU, 0, 3)
	r.awaitLabels(nodeB, map[string]string{"gpu.kubeslot.io/replicas": "1", "gpu.kubeslot.io/sharing-strategy": "none"})
}
