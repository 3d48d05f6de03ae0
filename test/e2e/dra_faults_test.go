package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// draHolder is a device of one slot that DRA gives, and a pod on a node that uses it.
func (r *rig) draHolder(name, node string) (dir string, holder *v1.Pod) {
	r.Helper()
	dir = r.TempDir()
	r.draEcho(name, 1, func(c *akriv0.ConfigurationSpec) {
		c.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(
			"descriptions: [%s0]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", name, dir)
	}, name+"0")
	r.createTemplate("one", wants(name, 1))
	r.create(r.draUser("holder", node))
	r.agreeDRA("holder", name, 1)
	return dir, r.pod("holder")
}

// draUser is a pod that locks its slot.
func (r *rig) draUser(name, node string) *v1.Pod {
	p := claimPod(name, node, "one")
	p.Spec.Containers[0].Args = []string{"hold", "/slots", "1h"}
	return p
}

// undisturbed checks that the holder's container is still the same one, and has its slot.
func (r *rig) undisturbed(holder *v1.Pod, configuration string) {
	r.Helper()
	r.awaitExec(holder.Name)
	r.agreeDRA(holder.Name, configuration, 1)
	was, is := holder.Status.ContainerStatuses[0], r.pod(holder.Name).Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
		r.Errorf("the container of pod %s is %s, was %s", holder.Name, is.ContainerID, was.ContainerID)
	}
}

// thenAnother deletes the holder, whose slot another pod gets.
func (r *rig) thenAnother(configuration, dir string) {
	r.Helper()
	r.delete("holder")
	r.awaitClaims(configuration, map[string]holding{})
	for _, node := range []string{nodeA, nodeB} {
		r.create(r.draUser("next-"+node, node))
		r.agreeDRA("next-"+node, configuration, 1)
		r.delete("next-" + node)
	}
	r.awaitClaims(configuration, map[string]holding{})
	r.noConflict(dir)
}

// The kubelet is restarted, then kubecri: pods with claims run on, and their slots are free when they end.
func TestDRANodeProgramsRestarted(t *testing.T) {
	testAll(t, "restarts a kubelet and kubecri")
	r := newRig(t)
	dir, holder := r.draHolder("dra-again", nodeA)
	for _, program := range []string{cluster.Kubelet, cluster.Kubecri} {
		r.check(shared.Restart(program, nodeA))
		r.check(shared.AwaitServing(r.ctx, program, nodeA))
		r.undisturbed(holder, "dra-again")
	}
	r.awaitReady(nodeA)
	r.thenAnother("dra-again", dir)
}

// kubecri is away while a pod with a claim ends: its slot is released when kubecri is back.
func TestDRAPodEndsWithoutKubecri(t *testing.T) {
	testAll(t, "kills kubecri again")
	r := newRig(t)
	dir, _ := r.draHolder("dra-away", nodeA)
	r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "holder", metav1.DeleteOptions{}))
	r.create(r.draUser("waiter", nodeB))
	r.awaitUnallocated("waiter")
	r.check(shared.Start(cluster.Kubecri, nodeA))
	r.agreeDRA("waiter", "dra-away", 1)
	r.delete("waiter")
	r.awaitClaims("dra-away", map[string]holding{})
	r.noConflict(dir)
}

// kubecri is restarted while there is no API server: a pod with a claim runs on, and its slot is released when it
// ends.
func TestDRAKubecriRestartedInAnOutage(t *testing.T) {
	testAll(t, "kills the API server")
	r := newRig(t)
	dir, holder := r.draHolder("dra-outage", nodeA)
	r.check(shared.Kill(cluster.APIServer, "", syscall.SIGKILL))
	back := sync.OnceFunc(func() {
		r.check(shared.Start(cluster.APIServer, ""))
		r.check(shared.AwaitServing(r.ctx, cluster.APIServer, ""))
		r.controlPlaneRuns()
	})
	defer back()
	r.check(shared.Restart(cluster.Kubecri, nodeA))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubecri, nodeA))
	if running := r.containersNow(nodeA, holder); len(running) != 1 {
		t.Errorf("in the outage the holder's containers are %v", running)
	}
	back()
	r.undisturbed(holder, "dra-outage")
	r.thenAnother("dra-outage", dir)
}

// The kubelet forgets what it has prepared while a pod is deleted by force: kubecri releases its slot.
func TestDRAKubeletStateLost(t *testing.T) {
	testAll(t, "restarts a kubelet")
	r := newRig(t)
	dir, _ := r.draHolder("dra-forgot", nodeA)
	r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGKILL))
	force := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "holder", force))
	r.check(os.Remove(filepath.Join(theNode().KubeletDir, "dra_manager_state")))
	r.check(shared.Start(cluster.Kubelet, nodeA))
	r.awaitReady(nodeA)
	r.awaitClaims("dra-forgot", map[string]holding{})
	r.create(r.draUser("next", nodeA))
	r.agreeDRA("next", "dra-forgot", 1)
	r.noConflict(dir)
}

// A node ends for good and its Node is deleted: the slot of its pod's claim is free once the claim is, and when the
// node is back it prepares claims again.
func TestDRANodeDeleted(t *testing.T) {
	testAll(t, "kills a node until its pods are deleted")
	r := newRig(t)
	dir, holder := r.draHolder("dra-lost", nodeB)
	r.create(r.draUser("waiter", nodeA))
	r.awaitUnallocated("waiter")
	r.killNode(nodeB)
	start := sync.OnceFunc(func() { r.startNode(nodeB) })
	defer start()
	if r.powerOff(*holder) == 0 {
		t.Error("the holder had no process")
	}
	r.check(kube.CoreV1().Nodes().Delete(r.ctx, nodeB, metav1.DeleteOptions{}))
	r.agreeDRA("waiter", "dra-lost", 1)
	r.delete("waiter")
	r.awaitClaims("dra-lost", map[string]holding{})
	start()
	r.create(r.draUser("again", nodeB))
	r.agreeDRA("again", "dra-lost", 1)
	r.noConflict(dir)
}

// A device is unplugged while a pod uses it: the pod's status says so, nobody else gets it, and all is well again
// when it is back.
func TestDRADeviceUnplugged(t *testing.T) {
	testAll(t, "takes all devices from the nodes")
	r := newRig(t)
	dir, holder := r.draHolder("dra-unplugged", nodeA)
	health := func(want v1.ResourceHealthStatus) {
		t.Helper()
		r.await("the pod's status to say that its device is "+string(want), func() (bool, string) {
			for _, s := range r.pod("holder").Status.ContainerStatuses[0].AllocatedResourcesStatus {
				for _, h := range s.Resources {
					if h.Health == want {
						return true, ""
					}
				}
			}
			return false, fmt.Sprintf("%+v", r.pod("holder").Status.ContainerStatuses[0].AllocatedResourcesStatus)
		})
	}
	tainted := func(want bool) {
		t.Helper()
		r.await(fmt.Sprint("the device to be published, tainted: ", want), func() (bool, string) {
			all := r.published("dra-unplugged")
			for _, d := range all {
				return len(all) == 1 && (len(d.Taints) > 0) == want, fmt.Sprintf("%+v", all)
			}
			return false, "it is not published"
		})
	}
	health(v1.ResourceHealthStatusHealthy)
	plugIn := func() {}
	for _, n := range shared.Nodes() {
		file := filepath.Join(n.KubecriDir, "debug-echo-availability.txt")
		r.check(writeFile(file, "OFFLINE\n"))
		before := plugIn
		plugIn = func() { before(); os.Remove(file) }
	}
	t.Cleanup(plugIn)
	health(v1.ResourceHealthStatusUnhealthy)
	tainted(true)
	r.create(r.draUser("waiter", nodeB))
	r.awaitUnallocated("waiter")
	r.undisturbed(holder, "dra-unplugged")
	plugIn()
	health(v1.ResourceHealthStatusHealthy)
	tainted(false)
	r.delete("waiter")
	r.thenAnother("dra-unplugged", dir)
}
