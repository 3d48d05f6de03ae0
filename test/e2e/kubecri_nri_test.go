package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	ktypes "github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// One node goes from proxy to NRI mode and back, with a pod that runs all the time
// on it, and everything that can happen to kubecri and containerd happens between.
func TestNRIMode(t *testing.T) {
	testAll(t, "takes a node to another mode and back")
	r := newRig(t)
	devices := r.debugEcho("nri", 3, nil, "nri0", "nri1")
	r.create(newPod("stays", nodeB, map[string]int64{"nri": 2}))
	stays := r.agree("stays", "nri", 2)
	id, claims := r.containers(nodeB, r.pod("stays"))[0].Id, r.claims("nri")
	unharmed := func(when string) {
		t.Helper()
		p := r.pod("stays")
		if c := r.containers(nodeB, p); len(c) != 1 || c[0].Id != id || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: its containers are %v, was %s: %v", when, c, id, p.Status.ContainerStatuses)
		}
		for slot, claim := range claims {
			if got := r.claims("nri")[slot]; got != claim {
				t.Errorf("%s: the claim of %s is %v, was %v", when, slot, got, claim)
			}
		}
	}

	r.check(shared.SetNRI(r.ctx, nodeB, true))
	defer func() {
		r.check(shared.SetNRI(r.ctx, nodeB, false))
		unharmed("in proxy mode again")
		r.create(newPod("last", nodeB, map[string]int64{"nri": 1}))
		r.agree("last", "nri", 1)
	}()
	unharmed("in NRI mode")
	socket := filepath.Join(shared.Nodes()[1].Dir, "nri.sock")
	out, err := exec.CommandContext(r.ctx, filepath.Join(shared.BinDir(), cluster.Kubecri), "check", "--mode=nri", "--nri-socket="+socket,
		"--runtime-endpoint="+shared.Nodes()[1].ContainerdSocket, "--node-name="+nodeB, "--kubeconfig="+shared.Kubeconfig()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok    NRI") {
		t.Errorf("kubecri check: %v\n%s", err, out)
	}

	r.create(newPod("p", nodeB, map[string]int64{"nri": 2}))
	r.agree("p", "nri", 2)
	r.create(newPod("goes", nodeB, map[string]int64{devices[0].name: 1}))
	goes := r.agree("goes", "nri", 1)

	// Devices that CDI does not describe.
	r.usersOfItsOwn(nodeB)
	r.delete("users")
	link := filepath.Join(t.TempDir(), "link")
	r.check(os.Symlink("/dev/zero", link))
	r.debugEcho("linked", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(`
descriptions: [zero]
mounts: [{containerPath: /data, hostPath: %s, readOnly: true}]
deviceSpecs: [{containerPath: /dev/cam0, hostPath: %s, permissions: r}]
`, filepath.Dir(link), link)
	}, "zero")
	r.create(newPod("linked", nodeB, map[string]int64{"linked": 1}))
	r.agree("linked", "linked", 1)
	if got := strings.TrimSpace(r.exec("linked", "read", "/dev/cam0", "4")); got != "00000000" {
		t.Errorf("read from /dev/cam0: %q", got)
	}
	if got := r.exec("linked", "ls", "/data"); !strings.Contains(got, "link") {
		t.Errorf("ls /data: %q", got)
	}

	// What ends is released by its event.
	r.check(shared.Kill(cluster.Kubelet, nodeB, syscall.SIGSTOP))
	pod := r.pod("p")
	box := r.containers(nodeB, pod)[0].PodSandboxId
	runtime := r.cri(shared.CRISocket(nodeB))
	_, err = runtime.StopPodSandbox(r.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box})
	r.check(err)
	stopped, left := time.Now(), 0
	r.await("the stopped pod's slots to be free", func() (bool, string) {
		left = 0
		for _, claim := range r.claims("nri") {
			if claim == heldBy(pod) {
				left++
			}
		}
		return left == 0, fmt.Sprint(left, " are held")
	})
	took := time.Since(stopped)
	t.Logf("released %s after its sandbox stopped", took.Round(time.Millisecond))
	if took > 10*time.Second { // the grace is 20 s, a resync comes every 30 s
		t.Error("too late for an event")
	}
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	r.check(shared.Kill(cluster.Kubelet, nodeB, syscall.SIGCONT))

	// containerd restarts.
	r.check(shared.Restart(cluster.Containerd, nodeB))
	r.check(shared.AwaitServing(r.ctx, cluster.Containerd, nodeB))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubecri, nodeB)) // which is to be connected
	r.create(newPod("after", nodeB, map[string]int64{"nri": 1}))
	r.agree("after", "nri", 1)
	unharmed("after a restart of containerd")
	r.delete("after")

	// kubecri is away.
	r.check(shared.Kill(cluster.Kubecri, nodeB, syscall.SIGKILL))
	// NRI fails open. Our scheduler has the runtime require the plugin for a container with devices;
	// one that another bound runs without, and so does one that asks for none.
	plain := newPod("plain", nodeB, nil)
	r.create(plain)
	r.awaitRunning("plain")
	r.bindOpen("open", "nri", r.freeSlot("nri", devices[1].name, 3))
	r.create(newPod("careful", nodeB, map[string]int64{"nri": 1}))
	r.awaitRunning("open")
	if list, ok := r.env("open")["AKRI_DEVICES"]; ok {
		t.Errorf("kubecri was down, and yet: %s", list)
	}
	r.awaitEvent("careful", "Failed", `required plugin "kubecri" not present`)
	gone := r.pod("goes")
	r.delete("goes")
	r.await("the containers of pod goes to be gone", func() (bool, string) {
		left := r.containers(nodeB, gone)
		return len(left) == 0, fmt.Sprint(left)
	})
	if got := r.claims("nri")[goes[0]]; got != heldBy(gone).byName() {
		t.Errorf("the claim of %s is %v while kubecri is down", goes[0], got)
	}

	r.check(shared.Start(cluster.Kubecri, nodeB))
	r.awaitEvent("open", "StartedWithoutDevices", `"main"`)
	r.await("container of pod open to be created again", func() (bool, string) {
		p := r.pod("open")
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].RestartCount > 0 && s[0].State.Running != nil, fmt.Sprint(s)
	})
	want := maps.Clone(claims)
	for _, name := range []string{"open", "careful"} {
		slot := r.agree(name, "nri", 1)[0]
		want[slot] = heldBy(r.pod(name))
	}
	if len(want) != len(claims)+2 {
		t.Errorf("slots: %v", want)
	}
	r.awaitClaims("nri", want) // "goes" is gone
	unharmed("after a kill of kubecri")

	// A slot is another's.
	other := r.newStranger("nri")
	held := r.claims("nri")
	r.check(shared.Kill(cluster.Kubelet, nodeB, syscall.SIGSTOP))
	r.create(newPod("late", nodeB, map[string]int64{devices[0].name: 1}))
	var slot string
	r.await("the pod to be bound", func() (bool, string) {
		text := r.pod("late").Annotations["KubeDevice/DeviceInfo"]
		_, rest, ok := strings.Cut(text, `/0":"`)
		slot, _, _ = strings.Cut(rest, `"`)
		return ok && held[slot] == (holding{}), text
	})
	r.check(other.take(slot))
	r.check(shared.Kill(cluster.Kubelet, nodeB, syscall.SIGCONT))
	r.awaitEvent("late", "DeviceRefused", `container "main"`, slot, "intruder", strangerName)
	r.awaitEvent("late", "Failed", "kubecri does not start container", slot, "intruder")
	r.check(r.releaseClaim(slot))
	r.agree("late", "nri", 1)
	if len(stays) != 2 {
		t.Errorf("slots of the pod that stays: %v", stays)
	}
}

// bindOpen makes a pod for node-b and binds it with the slot, without what the scheduler writes beside:
// the runtime may create its container without kubecri.
func (r *rig) bindOpen(name, configuration string, of slot.Name) {
	r.Helper()
	p := newPod(name, "", map[string]int64{configuration: 1})
	p.Spec.SchedulerName = "nobody"
	p = r.create(p)
	container := ktypes.ContainerInfo{}
	assignment.Set(&container, []assignment.Grant{{Resource: configuration, Slot: of}})
	notes, err := assignment.Encode(&ktypes.PodInfo{Name: name, NodeName: nodeB, RunningContainers: map[string]ktypes.ContainerInfo{"main": container}}, string(p.UID), nil)
	r.check(err)
	r.check(kube.CoreV1().Pods(r.ns).Bind(r.ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, UID: p.UID, Annotations: notes},
		Target: v1.ObjectReference{Kind: "Node", Name: nodeB}}, metav1.CreateOptions{}))
}

// freeSlot is one of a device that nobody holds.
func (r *rig) freeSlot(configuration, device string, capacity int) slot.Name {
	r.Helper()
	held := r.claims(configuration)
	for i := range capacity {
		if s := (slot.Name{Instance: device, Index: i}); held[s.String()] == (holding{}) {
			return s
		}
	}
	r.Fatalf("no slot of %s is free: %v", device, held)
	return slot.Name{}
}
