// Package mixed tests one cluster with nodes of both modes under Kubeslot's scheduler: on
// node-a the kubelet's device plugins give out slots, on node-b the scheduler does.
package mixed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	nodeA, nodeB = "node-a", "node-b"
	patience     = 4 * time.Minute
)

type rig struct {
	*testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	kube    kubernetes.Interface
	akri    versioned.Interface
}

// A slot of a shared device has one holder, be it a pod of the node with device plugins or of the
// other: while pods come and go, while the device is unplugged from the first node under its
// holder, and while somebody changes the label of a node's mode.
func TestBothModes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a node from mode to mode: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("brings up a cluster: run `make test-e2e` as root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	r := up(t, ctx, false)
	_, err := r.akri.AkriV0().Configurations("default").Create(ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam"},
		Spec: akriv0.ConfigurationSpec{Capacity: 2, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: [east]"}}}, metav1.CreateOptions{})
	r.check(err)
	r.await("both nodes to advertise the device", func() (bool, string) {
		a, b := r.node(nodeA), r.node(nodeB)
		return amount(a) == 1 && amount(b) == 2 && a.Labels[v1alpha1.ModeLabel] == v1alpha1.ModeDevicePlugin && b.Labels[v1alpha1.ModeLabel] == "",
			fmt.Sprint(a.Status.Allocatable, a.Labels, b.Status.Allocatable, b.Labels)
	})

	// One pod on each: the scheduler assigns on node-b alone, and the claims of both are in
	// one account.
	r.run("managed", nodeA)
	r.run("assigned", nodeB)
	if p := r.pod("managed"); p.Annotations["KubeDevice/DeviceInfo"] != "" || p.Annotations["kubeslot.io/holder"] != "" {
		t.Errorf("the pod of node-a has an assignment: %v", p.Annotations)
	}
	if p := r.pod("assigned"); p.Annotations["kubeslot.io/holder"] != string(p.UID) {
		t.Errorf("the pod of node-b has no assignment: %v", p.Annotations)
	}
	nodes := map[string]bool{}
	for _, c := range r.claims() {
		nodes[c.Spec.NodeName] = true
	}
	if len(r.claims()) != 2 || len(nodes) != 2 {
		t.Errorf("claims %v", r.claims())
	}
	// Both slots are taken: pods wait, on either node, and none fails.
	for _, node := range []string{nodeA, nodeB} {
		r.create("waits-"+node, node)
	}
	for _, node := range []string{nodeA, nodeB} {
		r.awaitRefused("waits-" + node)
	}
	// A slot that a node with device plugins gives back is the other's, and the other way round.
	r.remove("managed")
	r.remove("waits-" + nodeA)
	r.awaitRunning("waits-" + nodeB)
	r.remove("assigned")
	r.create("again", nodeA)
	r.awaitRunning("again")

	r.deviceGone()
	r.labelsByHand()

	// node-a changes its mode: drained first. Its kubelet fails pods with the resource for
	// another five minutes, see docs/device-plugin-mode.md.
	r.check(r.cluster.SetDevicePlugin(ctx, nodeA, false))
	r.await("node-a to have lost the label", func() (bool, string) {
		a := r.node(nodeA)
		return a.Labels[v1alpha1.ModeLabel] == "", fmt.Sprint(a.Labels)
	})
}

// deviceGone unplugs the device from node-a, where a container has a slot of it: the node
// lists it as gone, so that the slot is taken on all nodes until the container is gone, too.
func (r *rig) deviceGone() {
	r.Helper()
	offline := ""
	for _, n := range r.cluster.Nodes() {
		if n.Name == nodeA {
			offline = filepath.Join(n.KubecriDir, "debug-echo-availability.txt")
		}
	}
	r.check(os.WriteFile(offline, []byte("OFFLINE\n"), 0o644))
	r.Cleanup(func() { os.Remove(offline) })
	listed := func() []v1alpha1.Device {
		list, err := r.akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeA})
		r.check(err)
		var all []v1alpha1.Device
		for _, s := range list.Items {
			all = append(all, s.Spec.Devices...)
		}
		return all
	}
	r.await("node-a to list the device as gone", func() (bool, string) {
		all := listed()
		return len(all) == 1 && all[0].Gone && all[0].Unschedulable, fmt.Sprint(all)
	})
	r.create("late", nodeB)
	r.awaitRefused("late")
	if len(r.claims()) != 2 {
		r.Errorf("claims %v, want that of the container whose device is gone, too", r.claims())
	}
	r.check(os.Remove(offline))
	r.await("node-a to see the device again", func() (bool, string) {
		all := listed()
		return len(all) == 1 && !all[0].Gone && !all[0].Unschedulable, fmt.Sprint(all)
	})
	r.check(os.WriteFile(offline, []byte("OFFLINE\n"), 0o644))
	r.await("node-a to list the device as gone again", func() (bool, string) { all := listed(); return len(all) == 1 && all[0].Gone, fmt.Sprint(all) })
	r.remove("again")
	r.awaitRunning("late")
	r.await("node-a to list the device no longer", func() (bool, string) { all := listed(); return len(all) == 0, fmt.Sprint(all) })
	r.check(os.Remove(offline))
	r.remove("late")
	r.create("once-more", nodeA)
	r.awaitRunning("once-more")
}

// labelsByHand changes the label of a node's mode under pods that run: kubecri puts it
// right, and no slot is given twice nor lost.
func (r *rig) labelsByHand() {
	r.Helper()
	before := r.claims()
	for node, label := range map[string]string{nodeA: "null", nodeB: `"device-plugin"`} {
		right := r.node(node).Labels[v1alpha1.ModeLabel]
		n, err := r.kube.CoreV1().Nodes().Patch(r.ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.ModeLabel, label), metav1.PatchOptions{})
		r.check(err)
		if n.Labels[v1alpha1.ModeLabel] == right {
			r.Fatalf("the label of %s is %q, as before", node, right)
		}
		r.await("the label of "+node+" to be right again", func() (bool, string) {
			n := r.node(node)
			return n.Labels[v1alpha1.ModeLabel] == right, fmt.Sprint(n.Labels)
		})
	}
	r.create("one-too-many", nodeB)
	r.awaitRefused("one-too-many")
	same := func(a, b v1alpha1.SlotClaim) bool { return a.UID == b.UID }
	if after := r.claims(); len(before) != 2 || !slices.EqualFunc(before, after, same) {
		r.Errorf("claims %v, before %v", after, before)
	}
	for _, name := range []string{"once-more", "waits-" + nodeB} {
		if p := r.pod(name); p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount > 0 {
			r.Errorf("pod %s is %s: %v", name, p.Status.Phase, p.Status.ContainerStatuses)
		}
	}
	r.remove("one-too-many")
	r.remove("once-more")
}

func up(t *testing.T, ctx context.Context, gangs bool) *rig {
	t.Helper()
	cfg := cluster.Config{Name: "mixed", Nodes: []string{nodeA, nodeB}, Gangs: gangs, Binaries: map[string]string{}}
	if !gangs {
		cfg.DevicePlugin = []string{nodeA}
	}
	for _, name := range []string{cluster.Kubecri, cluster.Controller, cluster.Scheduler, "kubectl-kubeslot"} {
		folder := os.Getenv("BINARIES")
		if _, err := os.Stat(filepath.Join(folder, name)); folder != "" && err == nil {
			cfg.Binaries[name] = filepath.Join(folder, name)
		}
	}
	if err := cluster.Down(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, ctx: ctx, cluster: c}
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"get", "slotclaims"}, {"get", "events"}, {"describe", "nodes"}} {
				out, err := c.Kubectl(context.Background(), args...)
				t.Logf("kubectl %v: %v\n%s", args, err, out)
			}
		}
		if os.Getenv("KEEP") == "" {
			r.check(c.Down(context.Background()))
		}
	})
	config, err := c.RESTConfig()
	r.check(err)
	r.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	r.akri, err = versioned.NewForConfig(config)
	r.check(err)
	return r
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) await(what string, ok func() (bool, string)) {
	r.Helper()
	await.Within(r.T, patience, what, ok)
}

func (r *rig) node(name string) *corev1.Node {
	r.Helper()
	n, err := r.kube.CoreV1().Nodes().Get(r.ctx, name, metav1.GetOptions{})
	r.check(err)
	return n
}

func amount(n *corev1.Node) int64 {
	q := n.Status.Allocatable["akri.sh/cam"]
	return q.Value()
}

func (r *rig) claims() []v1alpha1.SlotClaim {
	r.Helper()
	list, err := r.akri.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	return list.Items
}

func (r *rig) pod(name string) *corev1.Pod {
	r.Helper()
	p, err := r.kube.CoreV1().Pods("default").Get(r.ctx, name, metav1.GetOptions{})
	r.check(err)
	return p
}

// newPod asks for a slot on the node, or on any if that is "".
func newPod(name, node string) *corev1.Pod {
	grace, no := int64(1), false
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}}}}}}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return p
}

func (r *rig) create(name, node string) {
	r.Helper()
	_, err := r.kube.CoreV1().Pods("default").Create(r.ctx, newPod(name, node), metav1.CreateOptions{})
	r.check(err)
}

func (r *rig) run(name, node string) {
	r.Helper()
	r.create(name, node)
	r.awaitRunning(name)
}

func (r *rig) awaitRunning(name string) {
	r.Helper()
	r.await("pod "+name+" to run", func() (bool, string) {
		p := r.pod(name)
		if p.Status.Phase == corev1.PodFailed {
			r.Fatalf("pod %s has failed: %s: %s", name, p.Status.Reason, p.Status.Message)
		}
		text, _ := json.Marshal(p.Status)
		return p.Status.Phase == corev1.PodRunning, string(text)
	})
}

func (r *rig) awaitRefused(name string) {
	r.Helper()
	r.await("pod "+name+" to be refused by the scheduler", func() (bool, string) {
		p := r.pod(name)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return true, ""
			}
		}
		return false, fmt.Sprint(p.Status)
	})
}

func (r *rig) remove(name string) {
	r.Helper()
	r.check(r.kube.CoreV1().Pods("default").Delete(r.ctx, name, metav1.DeleteOptions{}))
	r.await("pod "+name+" to be gone", func() (bool, string) {
		_, err := r.kube.CoreV1().Pods("default").Get(r.ctx, name, metav1.GetOptions{})
		return err != nil, "it is there"
	})
}
