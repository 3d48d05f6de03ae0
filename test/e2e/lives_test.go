package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A pod that is resized keeps its slot, also where that restarts its container;
// slots themselves cannot be resized.
func TestPodResize(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("size", 1, nil, "size0")
	p := newPod("p", nodeA, map[string]int64{"size": 1})
	c := &p.Spec.Containers[0]
	c.Resources.Requests = maps.Clone(c.Resources.Limits)
	c.Resources.Requests[v1.ResourceCPU] = resource.MustParse("10m")
	c.Resources.Requests[v1.ResourceMemory] = resource.MustParse("16Mi")
	c.ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	r.create(p)
	held := r.agree("p", "size", 1)
	claims := r.claims("size")

	resize := func(requests string) error {
		_, err := kube.CoreV1().Pods(r.ns).Patch(r.ctx, "p", types.StrategicMergePatchType,
			[]byte(`{"spec":{"containers":[{"name":"main","resources":{"requests":`+requests+`}}]}}`), metav1.PatchOptions{}, "resize")
		return err
	}
	resized := func(name v1.ResourceName, want string, restarts int32) {
		r.await(fmt.Sprintf("%s to be %s with %d restarts", name, want, restarts), func() (bool, string) {
			s := r.awaitRunning("p").Status.ContainerStatuses[0]
			if s.Resources == nil {
				return false, "no resources in the status"
			}
			got := s.Resources.Requests[name]
			return got.Cmp(resource.MustParse(want)) == 0 && s.RestartCount == restarts, fmt.Sprint(got.String(), " ", s.RestartCount)
		})
		if env := r.env("p"); !strings.Contains(env["AKRI_DEVICES"], held[0]) {
			t.Errorf("after the resize of %s AKRI_DEVICES is %s, want %s", name, env["AKRI_DEVICES"], held)
		}
		r.awaitClaims("size", claims)
	}
	r.check(resize(`{"cpu":"20m"}`))
	resized(v1.ResourceCPU, "20m", 0)
	r.check(resize(`{"memory":"24Mi"}`))
	resized(v1.ResourceMemory, "24Mi", 1)
	if err := resize(`{"akri.sh/size":"2"}`); err == nil || !strings.Contains(err.Error(), "only cpu and memory resources are mutable") {
		t.Errorf("resizing the slots: %v", err)
	}
	r.create(newPod("waiter", nodeB, map[string]int64{"size": 1}))
	r.awaitPending("waiter", "0 of 1 slots free")
	r.delete("p")
	r.agree("waiter", "size", 1)
}

// A sidecar has its slot besides the app container's for as long as the pod lives,
// also when it starts again. The pod's init containers, which end before, use the
// slots of those that follow: two slots do for four containers.
func TestSidecar(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	r.debugEcho("side", 2, func(c *akriv0.Configuration) {
		c.Spec.UniqueDevices = new(bool)
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf("descriptions: [side0]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", dir)
	}, "side0")
	p := newPod("p", nodeA, map[string]int64{"side": 1})
	container := func(name, lifetime string) v1.Container {
		c := *p.Spec.Containers[0].DeepCopy()
		c.Name, c.Args = name, []string{"hold", "/slots", lifetime}
		return c
	}
	sidecar, always := container("sidecar", "1h"), v1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	p.Spec.InitContainers = []v1.Container{container("before", "0s"), sidecar, container("beside", "0s")}
	p.Spec.Containers = []v1.Container{container("main", "1h")}
	r.create(p)
	p = r.awaitRunning("p")

	slots, ids := map[string]string{}, map[string]string{}
	for _, c := range r.containers(nodeA, p) {
		held := slices.Collect(maps.Values(slotAnnotations(c.Annotations)))
		if len(held) != 1 {
			t.Fatalf("container %s has the slots %v, want one", c.Metadata.Name, held)
		}
		slots[c.Metadata.Name], ids[c.Metadata.Name] = held[0], c.Id
	}
	if len(slots) != 4 || slots["sidecar"] == slots["main"] || slots["beside"] != slots["main"] {
		t.Fatalf("slots %v, want the sidecar's and main's to differ, and the init container beside the sidecar to have main's", slots)
	}
	claims := r.claims("side")
	if len(claims) != 2 {
		t.Errorf("the claims are %v, want two", claims)
	}

	_, err := r.cri(theNode().ContainerdSocket).StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: ids["sidecar"]})
	r.check(err)
	r.await("the sidecar to run again", func() (bool, string) {
		s := r.pod("p").Status.InitContainerStatuses
		return s[1].State.Running != nil && s[1].RestartCount == 1, fmt.Sprint(s)
	})
	for _, c := range r.containers(nodeA, p) {
		if got := slotAnnotations(c.Annotations); !slices.Contains(slices.Collect(maps.Values(got)), slots[c.Metadata.Name]) {
			t.Errorf("since the sidecar's restart container %s has %v, want %s", c.Metadata.Name, got, slots[c.Metadata.Name])
		}
	}
	r.awaitClaims("side", claims)
	if main := r.pod("p").Status.ContainerStatuses[0]; main.RestartCount != 0 {
		t.Errorf("main was started again: %v", main)
	}
	if conflict, err := os.ReadFile(filepath.Join(dir, "CONFLICT")); err == nil {
		t.Errorf("containers used a slot at the same time:\n%s", conflict)
	}

	r.create(newPod("waiter", nodeB, map[string]int64{"side": 2}))
	r.awaitPending("waiter", "0 of 2 slots free", "2 held")
	r.delete("p")
	r.agree("waiter", "side", 2)
}

// A node is deleted, with what it owns, and registers anew. Its pods run on and keep
// their slots; slices and claims come back, as those of the new Node object, and the
// node advertises its devices again.
func TestNodeDeletedAndReAdded(t *testing.T) {
	r := newRig(t)
	devices := r.debugEcho("renode", 2, nil, "renode0")
	r.create(newPod("holder", nodeB, map[string]int64{"renode": 1}))
	r.agree("holder", "renode", 1)
	r.create(newPod("by-name", nodeB, map[string]int64{devices[0].name: 1}))
	r.agree("by-name", "renode", 1)
	claims := r.claims("renode")
	before := map[string]string{}
	for _, name := range []string{"holder", "by-name"} {
		before[name] = r.containers(nodeB, r.pod(name))[0].Id
	}

	r.check(kube.CoreV1().Nodes().Delete(r.ctx, nodeB, metav1.DeleteOptions{}))
	r.create(newPod("waiter", nodeB, map[string]int64{"renode": 1}))
	// A kubelet registers its node only at start.
	r.check(shared.Kill("kubelet", nodeB, syscall.SIGKILL))
	r.check(shared.Start("kubelet", nodeB))
	owner := v1alpha1.NodeOwner(nodeB, r.awaitReady(nodeB).UID)
	r.await("the slices and claims of the new Node", func() (bool, string) {
		of := metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeB}
		reported, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, of)
		r.check(err)
		held, err := akri.KubeslotV1alpha1().SlotClaims().List(r.ctx, of)
		r.check(err)
		owners := [][]metav1.OwnerReference{}
		for _, s := range reported.Items {
			owners = append(owners, s.OwnerReferences)
		}
		for _, c := range held.Items {
			owners = append(owners, c.OwnerReferences)
		}
		former := slices.ContainsFunc(owners, func(o []metav1.OwnerReference) bool { return !slices.Equal(o, []metav1.OwnerReference{owner}) })
		return len(reported.Items) > 0 && len(held.Items) == 2 && !former, fmt.Sprint(owners)
	})
	r.awaitClaims("renode", claims)
	r.awaitAdvertised("renode", 2, r.awaitDevices("renode", 1))
	r.awaitPending("waiter", "0 of 2 slots free", "2 held")
	for name, id := range before {
		r.awaitExec(name)
		r.agree(name, "renode", 1)
		if after := r.containers(nodeB, r.pod(name)); after[0].Id != id {
			t.Errorf("the container of pod %s was replaced: %s, was %s", name, after[0].Id, id)
		}
	}
	r.delete("holder")
	r.agree("waiter", "renode", 1)
}

// awaitReady waits until the node is there and Ready.
func (r *rig) awaitReady(node string) *v1.Node {
	r.Helper()
	var n *v1.Node
	r.await(node+" to be there, and ready", func() (bool, string) {
		var err error
		if n, err = kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady {
				return c.Status == v1.ConditionTrue, c.Message
			}
		}
		return false, "no condition"
	})
	return n
}
