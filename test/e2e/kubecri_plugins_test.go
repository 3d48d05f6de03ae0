package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// fickle is the device plugin of that name on a node, which does what it is told.
type fickle struct {
	*rig
	node, dir string
}

// newFickle builds the plugin for the cluster's kubecri, has the node's load it, and
// takes it away at the end.
func (r *rig) newFickle(node string) *fickle {
	r.Helper()
	f := &fickle{rig: r, node: node}
	for _, n := range shared.Nodes() {
		if n.Name == node {
			f.dir = n.DevicePluginDir
		}
	}
	r.Cleanup(func() {
		files, _ := filepath.Glob(filepath.Join(f.dir, "*"))
		for _, file := range files {
			os.Remove(file)
		}
		f.restart()
	})
	cmd := exec.Command("go", "run", "./plugins/builder", "-binaries", shared.BinDir(), "-o", filepath.Join(f.dir, "fickle.so"),
		"./kubecri/soplugins/testdata/src/fickle")
	cmd.Dir = shared.Config().RepoRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return f
}

// say tells the plugin what to do from now on.
func (f *fickle) say(lines ...string) {
	f.Helper()
	fresh := filepath.Join(f.dir, "fickle.new")
	f.check(os.WriteFile(fresh, []byte(strings.Join(lines, "\n")), 0o600))
	f.check(os.Rename(fresh, filepath.Join(f.dir, "fickle")))
}

func (f *fickle) restart() {
	f.Helper()
	if err := shared.Kill("kubecri", f.node, syscall.SIGKILL); err != nil {
		f.Log(err) // it may have ended
	}
	f.check(shared.Start("kubecri", f.node))
}

func (f *fickle) look() *v1.Node {
	f.Helper()
	n, err := kube.CoreV1().Nodes().Get(f.ctx, f.node, metav1.GetOptions{})
	f.check(err)
	return n
}

// bind creates the pod and binds it as Kubeslot's scheduler does, with resources
// of the node assigned to its container "main".
func (f *fickle) bind(p *v1.Pod, from ...types.ResourceName) {
	f.Helper()
	p.Spec.SchedulerName = "nobody"
	p = f.create(p)
	main := types.ContainerInfo{AllocateFrom: types.ResourceLocation{}}
	for i, name := range from {
		main.AllocateFrom[types.ResourceName(fmt.Sprintf("resource/group/want/%d/cards", i))] = name
	}
	annotations, err := assignment.Encode(&types.PodInfo{Name: p.Name, NodeName: f.node,
		RunningContainers: map[string]types.ContainerInfo{"main": main, "side": {}}}, string(p.UID), nil)
	f.check(err)
	f.check(kube.CoreV1().Pods(f.ns).Bind(f.ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, Annotations: annotations},
		Target: v1.ObjectReference{Kind: "Node", Name: f.node}}, metav1.CreateOptions{}))
}

// stopMain stops a pod's container, which the kubelet then starts again.
func (f *fickle) stopMain(pod string) {
	f.Helper()
	conn, err := grpc.NewClient("unix://"+shared.Nodes()[0].ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	f.check(err)
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := runtime.ListContainers(f.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": f.ns, "io.kubernetes.container.name": "main"}}})
	f.check(err)
	_, err = runtime.StopContainer(f.ctx, &runtimeapi.StopContainerRequest{ContainerId: list.Containers[0].Id})
	f.check(err)
}

// awaitNodeEvent waits for an event of the node that has all the parts.
func (f *fickle) awaitNodeEvent(parts ...string) {
	f.Helper()
	f.await(fmt.Sprintf("an event of node %s with %q", f.node, parts), func() (bool, string) {
		events, err := kube.CoreV1().Events(metav1.NamespaceDefault).List(f.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + f.node})
		f.check(err)
		seen := ""
		for _, e := range events.Items {
			text := e.Reason + ": " + e.Message
			if containsAll(text, parts) {
				return true, ""
			}
			seen += text + "\n"
		}
		return false, seen
	})
}

// Two containers: one is assigned a device, the other asks for nothing.
func twoContainers(name string) *v1.Pod {
	p := newPod(name, "", nil)
	side := p.Spec.Containers[0]
	side.Name = "side"
	p.Spec.Containers = append(p.Spec.Containers, side)
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "FICKLE", Value: "all"}, {Name: "OWN", Value: "1"}}
	return p
}

// A device plugin from a .so file: what it says is advertised, what it gives to
// an assignment is in the container, and no container starts without.
func TestDevicePlugin(t *testing.T) {
	testAll(t, "builds a plugin, and restarts kubecri")
	r := newRig(t)
	f := r.newFickle(nodeA)
	device, data := filepath.Join(f.dir, "null0"), filepath.Join(f.dir, "data")
	r.check(unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	r.check(os.WriteFile(data, []byte("hello"), 0o644))
	good := []string{"device " + device, "mount " + data + " /fickle/data", "count 3"}
	f.say(good...)
	f.restart()
	r.await("the node to have what the plugin says", func() (bool, string) {
		n := f.look()
		info, err := assignment.DecodeNode(n.Annotations)
		r.check(err)
		amount := n.Status.Allocatable["example.com/fickle"]
		return amount.Value() == 3 && info.Allocatable["resource/group/fickle/2/cards"] == 1 &&
				n.Annotations[v1alpha1.PluginResourcesAnnotation] == "example.com/fickle",
			fmt.Sprint(amount.String(), n.Annotations)
	})

	f.bind(twoContainers("p"), "resource/group/fickle/1/cards")
	r.awaitRunning("p")
	has := func() {
		t.Helper()
		if env := r.env("p"); env["FICKLE"] != "1" || env["OWN"] != "1" {
			t.Errorf("environment %v", env)
		}
		if got := r.exec("p", "ls", device); !strings.HasPrefix(got, "Dc") {
			t.Errorf("the device in the container: %s", got)
		}
		if got := strings.TrimSpace(r.exec("p", "read", "/fickle/data", "5")); got != "68656c6c6f" {
			t.Errorf("the mount in the container: %s", got)
		}
	}
	has()
	side, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, "p", "-c", "side", "--", "/app", "env")
	r.check(err)
	if strings.Contains(side, "FICKLE") {
		t.Errorf("the other container has the device's variable: %s", side)
	}

	// The container's next life, after kubecri's, is from the annotation alone.
	f.restart()
	f.stopMain("p")
	r.await("the container to run again", func() (bool, string) {
		for _, s := range r.pod("p").Status.ContainerStatuses {
			if s.Name == "main" {
				return s.RestartCount > 0 && s.State.Running != nil, fmt.Sprint(s)
			}
		}
		return false, "no status"
	})
	has()

	// Allocate fails: that container alone, with the plugin's message, until it works.
	f.say("Allocate error widget 7 is on fire")
	f.bind(twoContainers("q"), "resource/group/fickle/0/cards")
	r.awaitEvent("q", "Failed", "widget 7 is on fire", "main")
	r.await("the container without devices to run", func() (bool, string) {
		for _, s := range r.pod("q").Status.ContainerStatuses {
			if s.Name == "side" {
				return s.State.Running != nil, fmt.Sprint(s.State)
			}
		}
		return false, "no status"
	})
	f.say(good...)
	r.awaitRunning("q")

	// Nobody has it, and nobody assigned it.
	f.bind(twoContainers("other"), "resource/group/other/0/cards")
	r.awaitEvent("other", "resource/group/other/0/cards", "no device plugin of this node answers")
	p := newPod("author", "", nil)
	p.Spec.NodeName = nodeA
	p.Annotations[assignment.Annotation] = `{"runningcontainer":{"main":{"requests":{"example.com/fickle":1}}}}`
	r.create(p)
	r.awaitEvent("author", "example.com/fickle", "assigned it no devices", "spec.nodeName")
	p = newPod("spec", "", nil)
	p.Spec.NodeName = nodeA
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/fickle": resource.MustParse("1")}
	r.create(p)
	r.awaitEvent("spec", "example.com/fickle", "assigned it no devices")

	f.say("Start error no driver")
	f.restart()
	f.awaitNodeEvent("DevicePluginFailed", "fickle", "no driver")
	f.bind(newPod("late", "", nil), "resource/group/fickle/2/cards")
	r.awaitEvent("late", "fickle", "no driver")
	f.say(good...)
	r.awaitRunning("late")
	f.awaitNodeEvent("DevicePluginRecovered", "fickle")
}

// A file that is no plugin takes nothing but its own devices away: kubecri works without
// it, its node says why, and so does the pod that needs it.
func TestBadDevicePlugin(t *testing.T) {
	testAll(t, "builds a plugin, and restarts kubecri")
	const condition = "kubeslot.io/DevicePluginsNotLoaded"
	r := newRig(t)
	f := r.newFickle(nodeB)
	r.check(os.Remove(filepath.Join(f.dir, "fickle.so")))
	r.check(os.WriteFile(filepath.Join(f.dir, "bad.so"), []byte("text"), 0o644))
	f.restart()
	r.check(shared.AwaitServing(r.ctx, "kubecri", nodeB))
	f.awaitNodeEvent("BadDevicePlugin", "bad.so", "not a shared object", "plugin-builder")
	r.awaitCondition(nodeB, condition, v1.ConditionTrue, "bad.so", "not a shared object")
	r.create(newPod("plain", nodeB, nil))
	r.awaitRunning("plain")
	f.bind(newPod("needs", "", nil), "resource/group/fickle/0/cards")
	r.awaitEvent("needs", "DeviceRefused", "not loaded on this node", "bad.so")
	r.check(os.Remove(filepath.Join(f.dir, "bad.so")))
	f.restart()
	r.awaitCondition(nodeB, condition, v1.ConditionFalse)
}

// An extended resource that the node's annotation lists as ours, and that no plugin has, is
// taken away; those of others stay.
func TestKubecriTakesAwayWhatNoPluginHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	patch := func(text string) {
		t.Helper()
		_, err := kube.CoreV1().Nodes().Patch(context.Background(), nodeB, apitypes.MergePatchType, []byte(text), metav1.PatchOptions{}, "status")
		r.check(err)
	}
	patch(`{"status":{"capacity":{"example.com/kubelets":"3"},"allocatable":{"example.com/kubelets":"3"}}}`)
	t.Cleanup(func() {
		patch(`{"status":{"capacity":{"example.com/kubelets":null},"allocatable":{"example.com/kubelets":null}}}`)
	})
	patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"example.com/ours"}},"status":{"capacity":{"example.com/ours":"1"},"allocatable":{"example.com/ours":"1"}}}`, v1alpha1.PluginResourcesAnnotation))
	r.await("the resource that no plugin has to be removed", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeB, metav1.GetOptions{})
		r.check(err)
		_, has := n.Status.Capacity["example.com/ours"]
		others := n.Status.Capacity["example.com/kubelets"]
		return !has && others.Value() == 3, fmt.Sprint(n.Status.Capacity)
	})
}
