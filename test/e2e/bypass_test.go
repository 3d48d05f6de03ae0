package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// awaitCondition waits until the node's condition has the status and says all parts.
func (r *rig) awaitCondition(node, kind string, status v1.ConditionStatus, parts ...string) {
	r.Helper()
	r.await(fmt.Sprintf("condition %s of %s to be %s", kind, node, status), func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		for _, c := range n.Status.Conditions {
			if string(c.Type) == kind {
				return c.Status == status && containsAll(c.Message, parts), fmt.Sprint(c.Status, c.Message)
			}
		}
		return false, "the node has no such condition"
	})
}

// The kubelet is pointed at containerd's socket, as an upgrade by kubeadm does: containers
// start without their devices. They are found out and stopped, but for those that their
// Configuration leaves alone, and have their devices when the kubelet uses kubecri again.
func TestKubeletPastKubecri(t *testing.T) {
	testAll(t, "points the kubelet past kubecri")
	r := newRig(t)
	const condition = "kubeslot.io/ContainersWithoutDevices"
	r.debugEcho("past", 3, nil, "past0")
	r.debugEcho("left", 1, nil, "left0")
	_, err := akri.AkriV0().Configurations(r.ns).Patch(r.ctx, "left", types.MergePatchType, []byte(`{"spec":{"missingDevices":"Ignore"}}`), metav1.PatchOptions{})
	r.check(err)
	r.create(newPod("stays", nodeA, map[string]int64{"past": 1}))
	r.agree("stays", "past", 1)
	stays := r.containers(nodeA, r.pod("stays"))[0].Id
	r.check(shared.SetKubecriArgs(r.ctx, nodeA, "--claim-resync=1s"))
	defer func() { r.check(shared.SetKubecriArgs(r.ctx, nodeA)) }()
	r.awaitCondition(nodeA, condition, v1.ConditionFalse)
	const counter = "kubecri_containers_without_devices_total"
	if n := r.kubecriMetric(nodeA, counter); n != 0 {
		t.Errorf("%s is %g before the kubelet was pointed past kubecri", counter, n)
	}

	config := filepath.Join(theNode().Dir, "kubelet.yaml")
	right, err := os.ReadFile(config)
	r.check(err)
	point := func(content string) {
		t.Helper()
		r.check(os.WriteFile(config, []byte(content), 0o644))
		r.check(shared.Restart(cluster.Kubelet, nodeA))
		// A kubelet whose runtime goes while it starts ends.
		r.check(shared.AwaitServing(r.ctx, cluster.Kubelet, nodeA))
	}
	point(strings.Replace(string(right), theNode().KubecriSocket, theNode().ContainerdSocket, 1))
	restored := false
	restore := func() {
		if !restored {
			point(string(right))
			restored = true
		}
	}
	defer restore()
	r.create(newPod("bypassed", nodeA, map[string]int64{"past": 1}))
	r.create(newPod("ignored", nodeA, map[string]int64{"left": 1}))
	r.create(newPod("plain", nodeA, nil))
	r.awaitEvent("bypassed", "StartedWithoutDevices", `"main"`, "is stopped", "slot past-")
	r.awaitEvent("ignored", "StartedWithoutDevices", `"main"`, "is left running without its devices")
	r.awaitCondition(nodeA, condition, v1.ConditionTrue, r.ns, "containerRuntimeEndpoint", theNode().KubecriSocket)
	// What the alert KubeslotContainersWithoutDevices is about.
	if n := r.kubecriMetric(nodeA, counter); n < 2 {
		t.Errorf("%s is %g, with the containers of the pods bypassed and ignored; want 2 or more", counter, n)
	}
	r.await("the container of pod bypassed to be stopped", func() (bool, string) {
		s := r.pod("bypassed").Status.ContainerStatuses
		return len(s) == 1 && (s[0].RestartCount > 0 || s[0].State.Terminated != nil || s[0].LastTerminationState.Terminated != nil), fmt.Sprint(s)
	})

	restore()
	r.agree("bypassed", "past", 1)
	for _, name := range []string{"stays", "ignored", "plain"} {
		p := r.awaitRunning(name)
		if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("the container of pod %s was started again %d times", name, n)
		}
	}
	if c := r.containers(nodeA, r.pod("stays")); len(c) != 1 || c[0].Id != stays || c[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("a container that has its devices was touched: %v, was %s", c, stays)
	}
	if held := r.claims("left"); len(held) != 0 {
		t.Errorf("a container without its device is credited with it: %v", held)
	}
}
