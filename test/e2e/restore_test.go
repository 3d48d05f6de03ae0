package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// etcd is restored from an older backup, and Kubernetes' own components are restarted, as
// its docs want it. Ours need nobody: what runs on the nodes keeps its devices and gets
// its claims again, what the backup does not know goes, and no slot has two holders.
func TestRestoredFromBackup(t *testing.T) {
	testAll(t, "restores etcd")
	r := newRig(t)
	r.debugEcho("past", 1, nil, "past0", "past1", "past2")
	for _, name := range []string{"stays", "ends"} {
		r.create(newPod(name, nodeA, map[string]int64{"past": 1}))
		r.agree(name, "past", 1)
	}
	ended := r.pod("ends").UID

	t.Log("the backup: pod starts is bound, and has neither container nor claim yet")
	r.awaitReady(nodeA)
	r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGSTOP))
	resume := sync.OnceFunc(func() { r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGCONT)) })
	defer resume()
	r.create(newPod("starts", nodeA, map[string]int64{"past": 1}))
	r.await("pod starts to be bound", func() (bool, string) {
		p := r.pod("starts")
		return p.Annotations[assignment.HolderAnnotation] == string(p.UID), fmt.Sprint(p.Status.Conditions)
	})
	backup := filepath.Join(t.TempDir(), "etcd")
	r.check(shared.Backup(backup))
	resume()

	t.Log("what the backup does not know")
	r.agree("starts", "past", 1)
	slot := r.agree("ends", "past", 1)
	r.delete("ends")
	r.create(newPod("later", nodeA, map[string]int64{"past": 1}))
	if got := r.agree("later", "past", 1); !slices.Equal(got, slot) {
		t.Fatalf("pod later has %v, want %v", got, slot)
	}
	later := r.pod("later")
	r.debugEcho("future", 1, nil, "future0")
	r.create(newPod("new", nodeB, map[string]int64{"future": 1}))
	r.agree("new", "future", 1)
	fresh := r.pod("new")
	unplugged := filepath.Join(shared.Nodes()[1].KubecriDir, "debug-echo-availability.txt")
	r.check(writeFile(unplugged, "OFFLINE\n"))
	defer os.Remove(unplugged)
	r.await("node-b to reach no device of past", func() (bool, string) {
		return !r.reaches(nodeB, "past"), fmt.Sprint(r.devices("past"))
	})
	kept := map[string]string{}
	for _, name := range []string{"stays", "starts"} {
		kept[name] = r.containers(nodeA, r.pod(name))[0].Id
	}
	r.manyWrites(1000) // the API server is not to reach soon what has been seen

	t.Log("the restore")
	t.Cleanup(r.controlPlaneRuns)
	defer r.supervise()()
	r.check(shared.Restore(backup))
	r.await("the API server to be back, and to know pod ends again", func() (bool, string) {
		p, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, "ends", metav1.GetOptions{})
		return err == nil && p.UID == ended, fmt.Sprint(err)
	})
	for _, node := range []string{nodeA, nodeB} {
		r.check(shared.Kill(cluster.Kubelet, node, syscall.SIGKILL))
	}
	r.check(shared.Kill(cluster.ControllerManager, "", syscall.SIGKILL))

	r.await("pods that the backup does not know to end", func() (bool, string) {
		left := append(r.containersNow(nodeA, later), r.containersNow(nodeB, fresh)...)
		return len(left) == 0, fmt.Sprint(left)
	})
	r.await("pod ends to run again", func() (bool, string) {
		list := r.containersNow(nodeA, r.pod("ends"))
		return len(list) == 1, fmt.Sprint(list)
	})
	want := map[string]holding{}
	for _, name := range []string{"stays", "starts", "ends"} {
		p := r.pod(name)
		for granted := range r.granted(p) {
			want[granted.String()] = heldBy(p)
		}
	}
	r.awaitClaims("past", want)
	for _, name := range []string{"stays", "starts", "ends"} {
		r.awaitExec(name)
		slots := r.agree(name, "past", 1)
		list := r.containersNow(nodeA, r.pod(name))
		if len(list) != 1 || slotAnnotations(list[0].Annotations)["akri.agent.slot-"+slots[0]] == "" {
			t.Errorf("pod %s has the containers %v, want one with slot %s", name, list, slots[0])
		}
		if id := kept[name]; id != "" && list[0].Id != id {
			t.Errorf("the container of pod %s was replaced: it was %s, and is %s", name, id, list[0].Id)
		}
	}
	r.await("slices of what the nodes see now", func() (bool, string) {
		seen := fmt.Sprint("past: ", r.devices("past"), ", future: ", r.devices("future"))
		return r.reaches(nodeA, "past") && !r.reaches(nodeB, "past") && len(r.devices("future")) == 0 && len(r.devices("past")) == 3, seen
	})
	r.awaitClaims("future", map[string]holding{})
	r.awaitView("past")
	r.ledgersAgree("past")

	r.create(newPod("waiter", "", map[string]int64{"past": 1}))
	r.awaitPending("waiter", "0 of 3 slots free", "3 held")
	r.delete("ends")
	if got := r.agree("waiter", "past", 1); !slices.Equal(got, slot) {
		t.Errorf("the waiting pod has %v, want %v", got, slot)
	}
}

// reaches reports whether a node has devices of a Configuration in its slices.
func (r *rig) reaches(node, configuration string) bool {
	r.Helper()
	return slices.ContainsFunc(r.devices(configuration), func(d device) bool { return slices.Contains(d.nodes, node) })
}

// containersNow are those of a pod that run, as its node's runtime says. kubecri may be away.
func (r *rig) containersNow(node string, pod *v1.Pod) []*runtimeapi.Container {
	r.Helper()
	socket := shared.Nodes()[slices.Index([]string{nodeA, nodeB}, node)].ContainerdSocket
	list, err := r.cri(socket).ListContainers(r.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}}})
	r.check(err)
	return list.Containers
}

// manyWrites makes the API server's resource version grow.
func (r *rig) manyWrites(n int) {
	r.Helper()
	maps := kube.CoreV1().ConfigMaps(r.ns)
	var writers errgroup.Group
	const together = 10
	for i := range together {
		writers.Go(func() error {
			c, err := maps.Create(r.ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("written-", i)}}, metav1.CreateOptions{})
			for j := 0; j < n/together && err == nil; j++ {
				c.Data = map[string]string{"n": fmt.Sprint(j)}
				c, err = maps.Update(r.ctx, c, metav1.UpdateOptions{})
			}
			return err
		})
	}
	r.check(writers.Wait())
}
