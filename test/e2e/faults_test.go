package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

// A slot that somebody else has claimed between Bind and CreateContainer: the
// container is refused with the slot and its holder, and starts once it is free.
func TestSlotClaimedByAnother(t *testing.T) {
	testAll(t, "freezes a kubelet")
	r := newRig(t)
	slot := r.debugEcho("stolen", 1, nil, "stolen0")[0].name + "-0"
	other := r.newStranger("stolen")
	r.check(shared.Kill("kubelet", nodeA, syscall.SIGSTOP))
	resume := func() { r.check(shared.Kill("kubelet", nodeA, syscall.SIGCONT)) }
	defer resume()
	r.create(newPod("p", nodeA, map[string]int64{"stolen": 1}))
	r.await("the pod to be bound", func() (bool, string) {
		p := r.pod("p")
		return p.Spec.NodeName == nodeA && p.Annotations[assignment.HolderAnnotation] == string(p.UID), fmt.Sprint(p.Annotations)
	})
	r.check(other.take(slot))
	resume()
	r.awaitEvent("p", "Failed", slot, "intruder", strangerName)
	r.awaitEvent("p", "DeviceRefused", `container "main" of pod `+r.ns+"/p", slot, "intruder", strangerName)
	if got := r.claims("stolen"); got[slot] != theirs {
		t.Errorf("the claims are %v", got)
	}
	r.check(r.releaseClaim(slot))
	r.agree("p", "stolen", 1)
}

// kubecri is killed: containers run on, claims stay right, and what happens
// meanwhile is made up for.
func TestKubecriKilled(t *testing.T) {
	r := newRig(t)
	r.debugEcho("kill", 2, nil, "kill0", "kill1")
	r.create(newPod("stays", nodeA, map[string]int64{"kill": 2}))
	r.create(newPod("goes", nodeA, map[string]int64{"kill": 1}))
	r.agree("stays", "kill", 2)
	gone := r.agree("goes", "kill", 1)
	before := r.containers(nodeA, r.pod("stays"))[0].Id
	claims := r.claims("kill")

	r.check(shared.Kill("kubecri", nodeA, syscall.SIGKILL))
	grace := int64(1)
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "goes", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	if got := r.claims("kill"); len(got) != len(claims) {
		t.Errorf("claims changed while kubecri was down: %v, were %v", got, claims)
	}
	r.check(shared.Start("kubecri", nodeA))

	delete(claims, gone[0])
	r.awaitClaims("kill", claims)
	r.agree("stays", "kill", 2)
	p := r.pod("stays")
	if c := r.containers(nodeA, p); c[0].Id != before || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was replaced: %s, was %s", c[0].Id, before)
	}
	// And it works on.
	r.create(newPod("next", nodeA, map[string]int64{"kill": 1}))
	r.agree("next", "kill", 1)
	r.delete("stays")
	r.delete("next")
	r.awaitClaims("kill", map[string]holding{})
}

// The scheduler is killed: the new one knows who holds what.
func TestSchedulerKilled(t *testing.T) {
	r := newRig(t)
	r.debugEcho("sched", 1, nil, "sched0")
	r.create(newPod("holder", nodeA, map[string]int64{"sched": 1}))
	r.agree("holder", "sched", 1)
	r.check(shared.Kill("kube-scheduler", "", syscall.SIGKILL))
	r.create(newPod("waiter", nodeB, map[string]int64{"sched": 1}))
	r.dropLease()
	r.check(shared.Start("kube-scheduler", ""))
	r.awaitPending("waiter", "0 of 1 slots free")
	r.delete("holder")
	r.agree("waiter", "sched", 1)
}

// With no API server, containers that have no devices start all the same.
func TestAPIServerDown(t *testing.T) {
	r := newRig(t)
	crasher := r.create(newPod("crasher", nodeA, nil))
	r.awaitRunning("crasher")
	first := r.containers(nodeA, crasher)[0].Id

	r.check(shared.Kill("kube-apiserver", "", syscall.SIGKILL))
	defer func() {
		if _, err := shared.PID("kube-apiserver", ""); err != nil {
			r.check(shared.Start("kube-apiserver", ""))
		}
		r.await("the API server to be back", func() (bool, string) {
			_, err := shared.Kubectl(r.ctx, "get", "--raw", "/readyz")
			return err == nil, fmt.Sprint(err)
		})
		r.controlPlaneRuns()
	}()

	_, err := r.cri(theNode().ContainerdSocket).StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: first}) // as if it had crashed
	r.check(err)
	static := newPod("static", "", nil)
	static.Namespace = r.ns
	static.APIVersion, static.Kind = "v1", "Pod"
	text, err := yaml.Marshal(static)
	r.check(err)
	manifest := filepath.Join(shared.Nodes()[0].StaticPodDir, "static.yaml")
	r.check(writeFile(manifest, string(text)))
	defer os.Remove(manifest)
	running := func(pod *v1.Pod, not string) func() (bool, string) {
		return func() (bool, string) {
			list := r.containers(nodeA, pod)
			for _, c := range list {
				if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Id != not {
					return true, ""
				}
			}
			return false, fmt.Sprint(list)
		}
	}
	mirror := static.DeepCopy()
	mirror.Name = "static-" + nodeA
	r.await("a static pod to start without the API server", running(mirror, ""))
	r.await("a crashed container to start again without the API server", running(crasher, first))
	r.check(os.Remove(manifest))
	r.await("the static pod to end", func() (bool, string) {
		ok, _ := running(mirror, "")()
		return !ok, "it still runs"
	})
}

// Devices that vanish and come back: slices and Instances follow, and a pod that
// waits for one runs when it is there.
func TestDevicesComeAndGo(t *testing.T) {
	r := newRig(t)
	r.debugEcho("hot", 1, nil, "hot0")
	unplug := func(node cluster.Node) string {
		file := filepath.Join(node.KubecriDir, "debug-echo-availability.txt")
		r.check(writeFile(file, "OFFLINE\n"))
		r.Cleanup(func() { os.Remove(file) })
		return file
	}
	nodes := shared.Nodes()
	first := unplug(nodes[0])
	r.await("only node-b to reach the device", func() (bool, string) {
		d := r.devices("hot")
		return len(d) == 1 && slices.Equal(d[0].nodes, []string{nodeB}), fmt.Sprint(d)
	})
	r.awaitView("hot")
	r.create(newPod("far", nodeA, map[string]int64{"hot": 1}))
	r.awaitPending("far", "akri.sh/hot")
	second := unplug(nodes[1])
	r.awaitDevices("hot", 0)
	r.awaitView("hot")
	r.ledgersAgree("hot") // else the pod is bound with what has just gone
	r.create(newPod("waiter", nodeB, map[string]int64{"hot": 1}))
	r.awaitPending("waiter", "no node reaches an Instance for akri.sh/hot")
	r.check(os.Remove(second))
	r.agree("waiter", "hot", 1)
	r.check(os.Remove(first))
	r.delete("waiter")
	r.agree("far", "hot", 1)
	r.awaitAdvertised("hot", 1, r.awaitDevices("hot", 1))
	r.awaitView("hot")
}

// The scheduler writes once for each pod that it schedules at first try, Events
// and its lease aside; and nobody needs more rights than deploy/ gives.
func TestOneWritePerPod(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := len(auditEvents(r)) // of an earlier run, on a cluster that is used again
	r.debugEcho("audit", 4, nil, "audit0", "audit1")
	// The scheduler may hear of the nodes' slots a moment after the API shows them.
	const first, pods = "first", 3
	r.create(newPod(first, "", map[string]int64{"audit": 2}))
	r.agree(first, "audit", 2)
	for i := range pods {
		name := fmt.Sprint("p", i)
		r.create(newPod(name, "", map[string]int64{"audit": 2}))
		r.agree(name, "audit", 2)
	}
	writes := []string{}
	for _, e := range auditEvents(r)[before:] {
		ref := e.ObjectRef
		if e.User.Username != "system:kube-scheduler" || ref.Namespace != r.ns || ref.Resource == "events" || ref.Name == first {
			continue
		}
		writes = append(writes, fmt.Sprintf("%s %s/%s %s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name))
	}
	if len(writes) != pods {
		t.Errorf("the scheduler made %d writes for %d pods: %v", len(writes), pods, writes)
	}
	for i, w := range writes {
		if !strings.HasPrefix(w, "create pods/binding") {
			t.Errorf("write %d is %s, want a binding", i, w)
		}
	}
}
