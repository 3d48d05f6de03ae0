package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// cordon marks a node unschedulable, or takes the mark off.
func (r *rig) cordon(node string, on bool) {
	r.Helper()
	_, err := kube.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, on)), metav1.PatchOptions{})
	r.check(err)
}

// awaitNotReady waits until the control plane has noticed that a node is gone, and
// returns when that was seen.
func (r *rig) awaitNotReady(node string) time.Time {
	r.Helper()
	r.await(node+" not to be Ready", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status != v1.ConditionTrue }), "it is"
	})
	return time.Now()
}

// awaitMade waits until there is a pod of the name.
func (r *rig) awaitMade(pod string) {
	r.Helper()
	r.await("pod "+pod, func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, pod, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// nodeParts are what makes a node, in the order in which they start.
var nodeParts = []string{cluster.Containerd, cluster.Kubecri, cluster.Kubelet}

// killNode ends a node's kubelet, kubecri and containerd at once. Its containers run on.
func (r *rig) killNode(node string) {
	r.Helper()
	for _, part := range slices.Backward(nodeParts) {
		r.check(shared.Kill(part, node, syscall.SIGKILL))
	}
}

// startNode starts those parts of a node that do not run, and waits until it is Ready.
func (r *rig) startNode(node string) {
	r.Helper()
	for _, part := range nodeParts {
		if _, err := shared.PID(part, node); err == nil {
			continue
		}
		r.check(shared.Start(part, node))
		if part != cluster.Kubelet {
			r.check(shared.AwaitServing(context.Background(), part, node))
		}
	}
	r.awaitReady(node)
}

// powerOff kills the processes of pods, as a machine does that ends.
func (r *rig) powerOff(pods ...v1.Pod) (killed int) {
	r.Helper()
	entries, err := os.ReadDir("/proc")
	r.check(err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		if err != nil {
			continue // it has ended
		}
		for _, p := range pods {
			if !strings.Contains(string(cgroup), "pod"+string(p.UID)) {
				continue
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
				killed++
			} else if !errors.Is(err, syscall.ESRCH) {
				r.Fatal(err)
			}
		}
	}
	return killed
}

// holdingBrokers is the spec of brokers that lock their slot, as devices that take one
// user, and are evicted a second after their node has gone. conflict fails the test if
// two have ever used a slot at once.
func (r *rig) holdingBrokers() (spec *v1.PodSpec, conflict func()) {
	r.Helper()
	dir := filepath.Join(os.TempDir(), "kubeslot-"+r.ns)
	r.check(os.MkdirAll(dir, 0o777))
	r.check(os.Chmod(dir, 0o777))
	r.Cleanup(func() { os.RemoveAll(dir) })
	soon := int64(1)
	spec = brokerPod(func(p *v1.PodSpec) {
		p.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &soon}}
		p.Volumes = []v1.Volume{{Name: "hold", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}}}
		p.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "hold", MountPath: "/hold"}}
	}, "hold", "/hold", "1h")
	return spec, func() {
		r.Helper()
		if report, err := os.ReadFile(filepath.Join(dir, "CONFLICT")); err == nil {
			r.Errorf("two brokers used a slot at once: %s", report)
		}
	}
}

// A node dies: its kubelet, kubecri and containerd are killed. Brokers go to the other
// node, at once where a slot is free. A slot that the dead node's broker holds is not
// given to its successor until somebody says that the broker is gone: by deleting its pod and
// releasing its slot, or by deleting the Node, which takes its slices and claims along. The node comes back, and all is
// as before.
func TestBrokersOfANodeThatDies(t *testing.T) {
	testAll(t, "kills a node, and waits for minutes")
	r := newRig(t)
	holding, conflict := r.holdingBrokers()
	r.cordon(nodeA, true)
	t.Cleanup(func() { r.cordon(nodeA, false) })
	for name, capacity := range map[string]int32{"removed": 1, "forgotten": 1, "spare": 2} {
		r.brokers(name, capacity, r.podBroker(holding), nil, name+"0")
	}
	r.debugEchoUnchecked("local", "debugEcho", `{"descriptions": ["stick"], "shared": false}`)
	onB := map[string]v1.Pod{}
	for _, name := range []string{"removed", "forgotten", "spare"} {
		p := r.awaitBrokerCount(name, 1)[0]
		if onB[name] = p; p.Spec.NodeName != nodeB {
			t.Fatalf("the broker of %s is on %s, which is cordoned", name, p.Spec.NodeName)
		}
	}
	r.awaitDevices("local", 2)
	onA := func(name string) string { return nodeA + strings.TrimPrefix(onB[name].Name, nodeB) }

	t.Cleanup(func() { r.startNode(nodeB) })
	r.killNode(nodeB)
	notReady := r.awaitNotReady(nodeB)
	r.cordon(nodeA, false)
	r.awaitMade(onA("spare"))
	r.awaitRunning(onA("spare"))
	if took := time.Since(notReady); took > time.Minute { // an eviction takes minutes
		t.Errorf("with a free slot the broker runs on %s %s after its node was seen not Ready", nodeA, took)
	}
	for _, name := range []string{"removed", "forgotten"} {
		r.awaitMade(onA(name))
		r.awaitPending(onA(name), "1 held")
		r.await("its predecessor to be evicted, which its node cannot do", func() (bool, string) {
			p := r.pod(onB[name].Name)
			return p.DeletionTimestamp != nil, string(p.Status.Phase)
		})
		if claims := r.slotClaims(name); len(claims) != 1 || claims[0].Spec.NodeName != nodeB || r.pod(onA(name)).Spec.NodeName != "" {
			t.Errorf("%s, while its broker may run: claims %v, its successor on %q", name, claims, r.pod(onA(name)).Spec.NodeName)
		}
	}

	// The machine is off, and somebody says so of one pod.
	if killed := r.powerOff(onB["removed"], onB["forgotten"], onB["spare"]); killed < 3 {
		t.Fatalf("%d processes of three brokers were killed: they should have run on", killed)
	}
	none := int64(0)
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, onB["removed"].Name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
	if out, errOut, code := r.kubeslot("release", "--yes", r.slotClaims("removed")[0].Name); code != 0 {
		t.Fatal(code, out, errOut)
	}
	r.awaitRunning(onA("removed"))
	if claims := r.slotClaims("removed"); len(claims) != 1 || claims[0].Spec.NodeName != nodeA {
		t.Errorf("removed: claims %v", claims)
	}
	if p := r.pod(onA("forgotten")); p.Spec.NodeName != "" {
		t.Errorf("the broker of forgotten went to %s while its predecessor is there", p.Spec.NodeName)
	}

	// And of the node: all goes that it owns.
	r.check(kube.CoreV1().Nodes().Delete(r.ctx, nodeB, metav1.DeleteOptions{}))
	r.await("the slices, claims and local Instances of the node to be gone", func() (bool, string) {
		of := metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeB}
		slicesLeft, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, of)
		r.check(err)
		claimsLeft, err := akri.KubeslotV1alpha1().SlotClaims().List(r.ctx, of)
		r.check(err)
		local := r.instances("local")
		return len(slicesLeft.Items) == 0 && len(claimsLeft.Items) == 0 && len(local) == 1, fmt.Sprint(len(slicesLeft.Items), len(claimsLeft.Items), len(local))
	})
	r.await("the pods of the node to be removed, for which the pod garbage collector takes a minute", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, onB["forgotten"].Name, metav1.GetOptions{})
		return err != nil, "it is there"
	})
	r.awaitRunning(onA("forgotten"))
	for _, name := range []string{"removed", "forgotten", "spare"} {
		if in := r.awaitInstance(name, nodeA); len(in.Spec.Nodes) != 1 {
			t.Errorf("%s: nodes %v", name, in.Spec.Nodes)
		}
		r.awaitBrokerCount(name, 1)
	}

	r.startNode(nodeB)
	r.awaitBrokerCount("spare", 2)
	r.awaitDevices("local", 2)
	for _, name := range []string{"removed", "forgotten"} {
		r.awaitInstance(name, nodeA, nodeB)
		if p := r.awaitBrokerCount(name, 1)[0]; p.Spec.NodeName != nodeA {
			t.Errorf("the broker of %s was moved to %s when the node came back", name, p.Spec.NodeName)
		}
	}
	conflict()
	for name, want := range map[string]int32{"removed": 1, "spare": 2} {
		r.await("the status of "+name, func() (bool, string) {
			s := r.status(name)
			return countsBrokers(s, want, want), fmt.Sprintf("%+v", s)
		})
	}
}

// A node that is off is put out of service: its brokers' slots are free, and the node can
// come back.
func TestBrokersOfANodeOutOfService(t *testing.T) {
	testAll(t, "kills a node")
	r := newRig(t)
	spec, conflict := r.holdingBrokers()
	taint := func(taint string) {
		_, err := shared.Kubectl(context.Background(), "taint", "node", nodeB, "node.kubernetes.io/out-of-service"+taint)
		r.check(err)
	}
	r.cordon(nodeA, true)
	t.Cleanup(func() { r.cordon(nodeA, false) })
	r.brokers("off", 1, r.podBroker(spec), nil, "off0")
	former := r.awaitBrokerCount("off", 1)[0]
	successor := nodeA + strings.TrimPrefix(former.Name, nodeB)
	t.Cleanup(func() { r.startNode(nodeB) })
	r.killNode(nodeB)
	if r.powerOff(former) == 0 {
		t.Fatal("the broker did not run on")
	}
	r.awaitNotReady(nodeB)
	r.cordon(nodeA, false)
	r.awaitMade(successor)
	r.awaitPending(successor, "1 held")
	taint("=gone:NoExecute")
	r.awaitRunning(successor)
	r.awaitBrokerCount("off", 1)
	taint("-")
	r.startNode(nodeB)
	r.awaitInstance("off", nodeA, nodeB)
	if p := r.awaitBrokerCount("off", 1)[0]; p.Name != successor {
		t.Errorf("the broker was moved back: %s, was %s", p.Name, successor)
	}
	conflict()
}
