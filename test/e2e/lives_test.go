package e2e

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod that is resized keeps its slot, also where that restarts its container;
// slots themselves cannot be resized.
func TestPodResize(t *testing.T) {
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
	usage := r.usage("size")

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
		r.awaitUsage("size", usage)
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

// A node is deleted and registers anew. Its pod runs on and keeps its slot, and
// the node advertises its devices again.
func TestNodeDeletedAndReAdded(t *testing.T) {
	r := newRig(t)
	instances := r.debugEcho("renode", 1, nil, "renode0")
	r.create(newPod("holder", nodeB, map[string]int64{"renode": 1}))
	r.agree("holder", "renode", 1)
	before := r.containers(nodeB, r.pod("holder"))[0].Id

	r.check(kube.CoreV1().Nodes().Delete(r.ctx, nodeB, metav1.DeleteOptions{}))
	r.create(newPod("waiter", nodeB, map[string]int64{"renode": 1}))
	// A kubelet registers its node only at start.
	r.check(shared.Kill("kubelet", nodeB, syscall.SIGKILL))
	r.check(shared.Start("kubelet", nodeB))
	r.await("node-b to be there again, and ready", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeB, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady {
				return c.Status == v1.ConditionTrue, c.Message
			}
		}
		return false, "no condition"
	})
	r.awaitAdvertised(instances)
	r.awaitPending("waiter", "0 of 1 slots free", "1 held")
	r.await("the kubelet to find its pod again", func() (bool, string) {
		_, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, "holder", "--", "/app", "env")
		return err == nil, fmt.Sprint(err)
	})
	r.agree("holder", "renode", 1)
	if after := r.containers(nodeB, r.pod("holder")); after[0].Id != before {
		t.Errorf("the container was replaced: %s, was %s", after[0].Id, before)
	}
	r.delete("holder")
	r.agree("waiter", "renode", 1)
}
