package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// lastSlot is a device of one slot, which a pod on node-a uses: its container locks a file, and so would
// that of another pod, which waits for the slot on node-b.
type lastSlot struct {
	*rig
	name, slot, dir string
	holder          *v1.Pod
	claim           *v1alpha1.SlotClaim
}

func newLastSlot(r *rig, name string, change func(*akriv0.Configuration)) *lastSlot {
	r.Helper()
	l := &lastSlot{rig: r, name: name, dir: r.TempDir()}
	r.debugEcho(name, 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf("descriptions: [%s0]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", name, l.dir)
		if change != nil {
			change(c)
		}
	}, name+"0")
	r.create(l.user("holder", nodeA))
	l.slot = r.agree("holder", name, 1)[0]
	l.holder = r.pod("holder")
	var err error
	l.claim, err = akri.KubeslotV1alpha1().SlotClaims().Get(r.ctx, l.slot, metav1.GetOptions{})
	r.check(err)
	return l
}

// user is a pod that uses the slot.
func (l *lastSlot) user(name, node string) *v1.Pod {
	p := newPod(name, node, map[string]int64{l.name: 1})
	p.Spec.Containers[0].Args = []string{"hold", "/slots", "1h"}
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	return p
}

// force deletes the holder without waiting for its node, and has another pod want the slot.
func (l *lastSlot) force() {
	l.Helper()
	l.check(kube.CoreV1().Pods(l.ns).Delete(l.ctx, "holder", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	l.create(l.user("waiter", nodeB))
}

// awaitNotReady waits until node-a is not Ready and the controller has seen it: it then says that the
// slot waits for its node. It ends as well when the claim is another's or gone: kept says so.
func (l *lastSlot) awaitNotReady() {
	l.Helper()
	l.await("node-a to be not Ready, and the controller to say that its slot waits", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(l.ctx, nodeA, metav1.GetOptions{})
		if err != nil || v1alpha1.Ready(n) {
			return false, fmt.Sprint("Ready, ", err)
		}
		if c, err := akri.KubeslotV1alpha1().SlotClaims().Get(l.ctx, l.slot, metav1.GetOptions{}); apierrors.IsNotFound(err) || err == nil && c.Spec.NodeName != nodeA {
			return true, ""
		}
		for line := range strings.Lines(l.controllerMetrics()) {
			if strings.HasPrefix(line, "kubeslot_controller_unreachable_slots ") {
				return line == "kubeslot_controller_unreachable_slots 1\n", line
			}
		}
		return false, "no metric"
	})
}

// kept checks that the claim stands, or was made again, and nobody else has the slot.
func (l *lastSlot) kept() {
	l.Helper()
	l.claimed()
	if p := l.pod("waiter"); p.Spec.NodeName != "" {
		l.Errorf("pod waiter is bound to %s", p.Spec.NodeName)
	}
	l.one()
}

// claimed checks that the claim is node-a's, for the holder.
func (l *lastSlot) claimed() {
	l.Helper()
	c, err := akri.KubeslotV1alpha1().SlotClaims().Get(l.ctx, l.slot, metav1.GetOptions{})
	if err != nil || c.Spec.NodeName != nodeA || c.Spec.Holder != string(l.holder.UID) {
		l.Errorf("the claim of slot %s is %+v, %v; want it kept: its container runs", l.slot, c, err)
	}
}

// one checks that no two containers had the slot at once.
func (l *lastSlot) one() {
	l.Helper()
	if conflict, err := os.ReadFile(filepath.Join(l.dir, "CONFLICT")); err == nil {
		l.Errorf("containers used a slot at the same time:\n%s", conflict)
	}
}

// then checks that the waiting pod gets the slot.
func (l *lastSlot) then() {
	l.Helper()
	l.agree("waiter", l.name, 1)
	l.one()
}

// A kubelet that is killed takes no container along: one whose pod is deleted by force runs on, and its
// slot is its own until the kubelet is back and ends it, though the node is not Ready.
func TestKubeletKilledAndPodForceDeleted(t *testing.T) {
	testAll(t, "kills a kubelet until its node is not Ready")
	l := newLastSlot(newRig(t), "forced", nil)
	l.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGKILL))
	start := sync.OnceFunc(func() { l.check(shared.Start(cluster.Kubelet, nodeA)) })
	defer start()
	l.force()
	l.awaitNotReady()
	l.kept()
	start()
	l.then()
	l.awaitReady(nodeA)
}

// A node that no longer sees a device, which another node sees, keeps the slot that a container of it
// uses, though its pod was deleted by force and its kubelet is away.
func TestDeviceLostAndPodForceDeleted(t *testing.T) {
	testAll(t, "kills a kubelet until its node is not Ready")
	l := newLastSlot(newRig(t), "lost", nil)
	l.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGKILL))
	start := sync.OnceFunc(func() { l.check(shared.Start(cluster.Kubelet, nodeA)) })
	defer start()
	for _, n := range shared.Nodes() {
		if n.Name == nodeA {
			file := filepath.Join(n.KubecriDir, "debug-echo-availability.txt")
			l.check(writeFile(file, "OFFLINE\n"))
			defer os.Remove(file)
		}
	}
	l.await("node-a to see the device no more", func() (bool, string) {
		all, err := akri.KubeslotV1alpha1().DeviceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeA})
		if err != nil {
			return false, err.Error()
		}
		for _, s := range all.Items {
			for _, d := range s.Spec.Devices {
				if d.Configuration.Name == l.name && !d.Gone {
					return false, fmt.Sprintf("%+v", d)
				}
			}
		}
		return true, ""
	})
	l.force()
	l.awaitNotReady()
	l.kept()
	start()
	l.then()
	l.awaitReady(nodeA)
}

// A node that is cut off runs its containers. Its slots are its own until it is back.
func TestPartitionAndPodForceDeleted(t *testing.T) {
	testAll(t, "cuts a node off until it is not Ready")
	l := newLastSlot(newRig(t), "cutoff", nil)
	l.check(shared.Partition(nodeA))
	heal := sync.OnceFunc(func() { l.check(shared.Heal(nodeA)) })
	defer heal()
	l.force()
	l.awaitNotReady()
	l.kept()
	heal()
	l.then()
	l.awaitReady(nodeA)
}

// The runtime is frozen while a pod without a grace period is preempted: its object goes at once, its
// container stays until the runtime is back, and so does its claim, though the node is not Ready.
func TestRuntimeFrozenWhilePreempted(t *testing.T) {
	testAll(t, "freezes a runtime until its node is not Ready")
	r := newRig(t)
	l := newLastSlot(r, "frozen", nil)
	l.check(shared.Kill(cluster.Containerd, nodeA, syscall.SIGSTOP))
	resume := sync.OnceFunc(func() { l.check(shared.Kill(cluster.Containerd, nodeA, syscall.SIGCONT)) })
	defer resume()
	vip := l.user("waiter", nodeB)
	vip.Spec.PriorityClassName = r.priorityClass(1000)
	r.create(vip)
	r.await("the holder to be preempted", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, "holder", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	// A kubelet takes minutes to say that its runtime does not answer.
	l.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGSTOP))
	answer := sync.OnceFunc(func() { l.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGCONT)) })
	defer answer()
	l.awaitNotReady()
	l.kept()
	resume()
	answer()
	l.then()
	l.awaitReady(nodeA)
}

// A backup is restored that does not know the pod on node-a, nor its claim; the kubelet there is away, so
// that the container runs on and the node is not Ready. Its claim is made again, and stays.
func TestRestoredUnderAnUnknownPod(t *testing.T) {
	testAll(t, "restores etcd")
	r := newRig(t)
	backup := filepath.Join(t.TempDir(), "etcd")
	var l *lastSlot
	dir := r.TempDir()
	r.debugEcho("unknown", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf("descriptions: [unknown0]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", dir)
	}, "unknown0")
	l = &lastSlot{rig: r, name: "unknown", dir: dir}
	r.create(l.user("waiter", "nowhere")) // in the backup, and not yet to be scheduled
	r.check(shared.Backup(backup))
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "waiter", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	r.create(l.user("holder", nodeA))
	l.slot = r.agree("holder", l.name, 1)[0]
	l.holder = r.pod("holder")
	r.manyWrites(1000)

	r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGSTOP))
	resume := sync.OnceFunc(func() { r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGCONT)) })
	defer resume()
	t.Cleanup(r.controlPlaneRuns)
	supervisor := r.superviseBut(cluster.Kubelet, nodeA)
	stop := sync.OnceFunc(supervisor.stop)
	defer stop()
	r.check(shared.Restore(backup))
	r.await("the API server to be back", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, "holder", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	r.check(shared.Kill(cluster.ControllerManager, "", syscall.SIGKILL))
	r.check(shared.Kill(cluster.Kubelet, nodeB, syscall.SIGKILL))
	r.await("pod waiter of the backup to be known, and to go", func() (bool, string) {
		err := kube.CoreV1().Pods(r.ns).Delete(r.ctx, "waiter", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	r.create(l.user("waiter", nodeB))
	r.await("node-a to make its claim again", func() (bool, string) {
		c, err := akri.KubeslotV1alpha1().SlotClaims().Get(r.ctx, l.slot, metav1.GetOptions{})
		return err == nil && c.Spec.MadeAgain && c.Spec.NodeName == nodeA, fmt.Sprint(c, err)
	})
	l.awaitNotReady()
	l.kept()
	stop()
	resume()
	l.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGKILL)) // as Kubernetes wants it after a restore
	l.check(shared.Start(cluster.Kubelet, nodeA))
	l.then()
	l.awaitReady(nodeA)
}

// A Configuration that prefers a broker elsewhere: a node that is cut off for so long stops its
// containers before their slots are released, and creates none again before it is back.
func TestReleaseUnreachableAfter(t *testing.T) {
	testAll(t, "cuts a node off for longer than a minute")
	l := newLastSlot(newRig(t), "lets-go", func(c *akriv0.Configuration) {
		c.Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: time.Minute}
	})
	if d := l.claim.Spec.ReleaseUnreachableAfter; d == nil || d.Duration != time.Minute {
		t.Fatalf("the claim promises %v", d)
	}
	l.check(shared.Partition(nodeA))
	heal := sync.OnceFunc(func() { l.check(shared.Heal(nodeA)) })
	defer heal()
	l.force()
	l.await("node-a to stop the container", func() (bool, string) {
		list := l.containersNow(nodeA, l.holder)
		return len(list) == 0, fmt.Sprint(list)
	})
	l.kept()
	l.await("the waiting pod to be bound", func() (bool, string) {
		p := l.pod("waiter")
		return p.Spec.NodeName == nodeB, fmt.Sprint(p.Status.Conditions)
	})
	l.then()
	heal()
	l.awaitReady(nodeA)
	l.one()
}

// Somebody says that a slot's container does not run. If it does, the node claims the slot again and
// nobody else gets it; if it does not, the slot is free. It takes a right of its own.
func TestReleaseByHand(t *testing.T) {
	testAll(t, "kills a kubelet until its node is not Ready")
	r := newRig(t)
	l := newLastSlot(r, "by-word", nil)
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubeslot:release"}
	r.clusterRoleBinding(r.ns+"-release", role, "anna")
	deleter, err := kube.RbacV1().ClusterRoles().Create(r.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.ns + "-delete"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"kubeslot.io"}, Resources: []string{"slotclaims"}, Verbs: []string{"get", "delete"}}}}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(func() {
		r.check(kube.RbacV1().ClusterRoles().Delete(context.Background(), deleter.Name, metav1.DeleteOptions{}))
	})
	r.clusterRoleBinding(r.ns+"-delete", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: deleter.Name}, "eve")

	release := func(user string, args ...string) (said string, code int) {
		out, errOut, code := r.kubeslot(append([]string{"release", "--as", user, l.slot}, args...)...)
		return out + errOut, code
	}
	if said, code := release("anna", "--yes"); code != 1 || !strings.Contains(said, "Ready") {
		t.Errorf("a slot of a node that is Ready: exit code %d, %s", code, said)
	}
	r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGKILL))
	start := sync.OnceFunc(func() { r.startNode(nodeA) }) // a kubelet that finds no kubecri ends
	defer start()
	l.force()
	l.awaitNotReady()
	if out, err := shared.Kubectl(r.ctx, "delete", "slotclaim", l.slot, "--as", "eve"); err == nil || !strings.Contains(out+err.Error(), "kubectl kubeslot release") {
		t.Errorf("deleted without the verb release: %s, %v", out, err)
	}
	if said, code := release("eve", "--yes"); code != 1 || !strings.Contains(said, "kubeslot:release") {
		t.Errorf("released without the right: exit code %d, %s", code, said)
	}
	if said, code := release("anna"); code != 1 || !strings.Contains(said, "--yes") {
		t.Errorf("released without being asked: exit code %d, %s", code, said)
	}

	t.Log("its container runs: the node claims the slot again")
	said, code := release("anna", "--yes")
	if code != 1 || !strings.Contains(said, "again") || !strings.Contains(said, nodeA) {
		t.Errorf("exit code %d, %s; want it said that the node has claimed it again", code, said)
	}
	// The scheduler may have given the slot in between; its pod waits for it then.
	l.claimed()
	if p := r.pod("waiter"); p.Status.Phase != v1.PodPending {
		t.Errorf("pod waiter is %s", p.Status.Phase)
	}

	t.Log("the node is off: neither kubecri nor the container runs")
	r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
	for _, c := range l.containersNow(nodeA, l.holder) {
		_, err := r.cri(shared.Nodes()[0].ContainerdSocket).StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id})
		r.check(err)
	}
	if said, code := release("anna", "--yes"); code != 0 {
		t.Errorf("exit code %d, %s", code, said)
	}
	l.then()
	start()
	l.one()
}

// clusterRoleBinding gives a user a role while the test runs.
func (r *rig) clusterRoleBinding(name string, role rbacv1.RoleRef, user string) {
	r.Helper()
	_, err := kube.RbacV1().ClusterRoleBindings().Create(r.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: role,
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}}, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() {
		r.check(kube.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}
