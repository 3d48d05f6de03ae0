package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// theNode is node-a, of which the tests here take parts away.
func theNode() cluster.Node { return shared.Nodes()[0] }

// awaitOtherContainer waits until the pod runs in another container than not.
func (r *rig) awaitOtherContainer(pod *v1.Pod, not string) *runtimeapi.Container {
	r.Helper()
	var found *runtimeapi.Container
	r.await(fmt.Sprintf("pod %s to run in another container than %q", pod.Name, not), func() (bool, string) {
		list := r.containers(nodeA, pod)
		for _, c := range list {
			if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Id != not {
				found = c
			}
		}
		return found != nil, fmt.Sprint(list)
	})
	return found
}

// The runtime is killed while pods with devices come and go: those that run are
// not touched, the others come to be, and every claim is one container's.
func TestRuntimeKilledUnderLoad(t *testing.T) {
	r := newRig(t)
	const pods = 4
	r.debugEcho("load", pods+2, nil, "load0")
	r.create(newPod("stays", nodeA, map[string]int64{"load": 1}))
	r.create(newPod("goes", nodeA, map[string]int64{"load": 1}))
	r.agree("stays", "load", 1)
	r.agree("goes", "load", 1)
	before := r.containers(nodeA, r.pod("stays"))[0].Id

	for i := range pods {
		r.create(newPod(fmt.Sprint("p", i), nodeA, map[string]int64{"load": 1}))
	}
	r.await("the first of the pods to be claimed for", func() (bool, string) {
		got := r.claims("load")
		return len(got) > 2, fmt.Sprint(got)
	})
	r.check(shared.Kill(cluster.Containerd, nodeA, syscall.SIGKILL))
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "goes", metav1.DeleteOptions{}))
	r.check(shared.Start(cluster.Containerd, nodeA))

	r.await("the deleted pod to be gone", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, "goes", metav1.GetOptions{})
		return err != nil, "it is still there"
	})
	want := map[string]holding{}
	for _, name := range []string{"stays", "p0", "p1", "p2", "p3"} {
		for _, slot := range r.agree(name, "load", 1) {
			want[slot] = heldBy(r.pod(name))
		}
	}
	if len(want) != pods+1 {
		t.Errorf("%d pods have %d slots: %v", pods+1, len(want), want)
	}
	r.awaitClaims("load", want)
	if c := r.containers(nodeA, r.pod("stays")); len(c) != 1 || c[0].Id != before {
		t.Errorf("the container that ran was replaced: %v, was %s", c, before)
	}
}

// An API server that hangs or is slow holds up nothing that does not need it:
// containers without devices start, and one that has its claim starts again.
func TestAPIServerHangs(t *testing.T) {
	testAll(t, "freezes the API server")
	r := newRig(t)
	r.debugEcho("hang", 2, nil, "hang0")
	holder := r.create(newPod("holder", nodeA, map[string]int64{"hang": 1}))
	slots := r.agree("holder", "hang", 1)
	plain := r.create(newPod("plain", nodeA, nil))
	r.awaitRunning("plain")
	first, other := r.containers(nodeA, holder)[0].Id, r.containers(nodeA, plain)[0].Id
	runtime := r.cri(theNode().ContainerdSocket)

	pause := func() { r.check(shared.Kill("kube-apiserver", "", syscall.SIGSTOP)) }
	resume := func() { r.check(shared.Kill("kube-apiserver", "", syscall.SIGCONT)) }
	pause()
	defer resume()
	for _, id := range []string{first, other} { // as if they had crashed
		_, err := runtime.StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
		r.check(err)
	}
	r.awaitOtherContainer(plain, other)
	again := r.awaitOtherContainer(holder, first)
	if got := slotAnnotations(again.Annotations); len(got) != 1 || got["akri.agent.slot-"+slots[0]] == "" {
		t.Errorf("the container that started again has %v, want slot %s", got, slots[0])
	}

	// Slow: an API server that works a fifth of the time.
	slow, stop := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for running := true; ; running = !running {
			wait := 200 * time.Millisecond
			if running {
				wait = 50 * time.Millisecond
				_ = shared.Kill("kube-apiserver", "", syscall.SIGCONT)
			} else {
				_ = shared.Kill("kube-apiserver", "", syscall.SIGSTOP)
			}
			select {
			case <-time.After(wait):
			case <-slow.Done():
				return
			}
		}
	}()
	defer func() { stop(); <-ended }()
	r.controlPlaneRuns()
	r.create(newPod("late", nodeA, map[string]int64{"hang": 1}))
	r.awaitRunning("late")
	stop()
	<-ended
	resume()
	late := r.agree("late", "hang", 1)
	r.awaitClaims("hang", map[string]holding{slots[0]: heldBy(r.pod("holder")), late[0]: heldBy(r.pod("late"))})
	r.controlPlaneRuns()
}

// With no room for CDI specs, devices are written into the request; nothing that
// kubecri knows is lost with the disk.
func TestDiskFull(t *testing.T) {
	testAll(t, "fills a disk and restarts kubecri")
	r := newRig(t)
	r.debugEcho("before", 1, nil, "before0")
	r.create(newPod("holder", nodeA, map[string]int64{"before": 1}))
	kept := r.agree("holder", "before", 1)

	inNode := func(args ...string) {
		r.Helper()
		out, err := exec.Command("nsenter", append([]string{"--mount=" + theNode().MountNS}, args...)...).CombinedOutput()
		if err != nil {
			r.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	dir := theNode().CDIDir
	inNode("mount", "-t", "tmpfs", "-o", "size=4k", "full", dir)
	defer func() { inNode("umount", dir) }()
	inNode("dd", "if=/dev/zero", "of="+filepath.Join(dir, "full"), "bs=4k", "count=1", "status=none")

	r.debugEcho("full", 1, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = `
descriptions: [zero]
deviceSpecs: [{containerPath: /dev/cam0, hostPath: /dev/zero, permissions: r}]
`
	}, "zero")
	r.create(newPod("p", nodeA, map[string]int64{"full": 1}))
	r.agree("p", "full", 1)
	if got := r.exec("p", "read", "/dev/cam0", "4"); got != "00000000\n" {
		t.Errorf("read from /dev/cam0: %q", got)
	}
	// A restarted kubecri, too, knows who holds what; the container that it does not
	// know starts again with its device.
	r.check(shared.Restart(cluster.Kubecri, nodeA))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubecri, nodeA))
	first := r.containersOnce(r.pod("holder"))
	_, err := r.cri(theNode().ContainerdSocket).StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: first})
	r.check(err)
	r.awaitOtherContainer(r.pod("holder"), first)
	r.awaitClaims("before", map[string]holding{kept[0]: heldBy(r.pod("holder"))})
	r.delete("p")
	r.awaitClaims("full", map[string]holding{})
}

// containersOnce waits for the pod's one container: kubecri may just have started.
func (r *rig) containersOnce(pod *v1.Pod) (id string) {
	r.Helper()
	list, err := r.cri(theNode().ContainerdSocket).ListContainers(r.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}}})
	r.check(err)
	if len(list.Containers) != 1 {
		r.Fatalf("pod %s has %d containers, want 1", pod.Name, len(list.Containers))
	}
	return list.Containers[0].Id
}

// Capacity below what a pod holds, then no device at all, and a kubelet that
// starts anew each time: it finds no less than its pods hold, and lets them live.
func TestShrinkBelowUseAndKubeletRestart(t *testing.T) {
	testAll(t, "restarts the kubelet")
	r := newRig(t)
	r.debugEcho("shrink", 2, func(c *akriv0.Configuration) {
		no := false
		c.Spec.UniqueDevices = &no
	}, "shrink0")
	holder := r.create(newPod("holder", nodeA, map[string]int64{"shrink": 2}))
	r.agree("holder", "shrink", 2)
	before, claims := r.containers(nodeA, holder)[0].Id, r.claims("shrink")

	lives := func(after string) {
		r.Helper()
		r.check(shared.Restart(cluster.Kubelet, nodeA))
		// A kubelet that runs a new pod has looked at its old ones.
		r.create(newPod(after, nodeA, nil))
		r.awaitRunning(after)
		p := r.pod("holder")
		if c := r.containers(nodeA, p); p.Status.Phase != v1.PodRunning || len(c) != 1 || c[0].Id != before || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Fatalf("%s: the pod is %s (%s) with containers %v, want it untouched in %s", after, p.Status.Phase, p.Status.Message, c, before)
		}
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
		r.check(err)
		if q := n.Status.Allocatable["akri.sh/shrink"]; q.Value() < 2 {
			t.Errorf("%s: the node says %s slots, and its pod holds 2", after, q.String())
		}
		if got := r.claims("shrink"); !maps.Equal(got, claims) {
			t.Errorf("%s: the claims are %v, want %v", after, got, claims)
		}
	}
	_, err := akri.AkriV0().Configurations(r.ns).Patch(r.ctx, "shrink", types.MergePatchType, []byte(`{"spec":{"capacity":1}}`), metav1.PatchOptions{})
	r.check(err)
	r.awaitView("shrink")
	lives("after-shrink")
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "shrink", metav1.DeleteOptions{}))
	r.awaitDevices("shrink", 0)
	lives("after-loss")
}

// kubecri is killed with a CreateContainer in flight: before the runtime has it,
// and when the container exists and nobody has been told. The kubelet tries again,
// and each slot is its pod's.
func TestKubecriKilledDuringCreate(t *testing.T) {
	testAll(t, "kills kubecri again")
	r := newRig(t)
	r.debugEcho("flight", 2, nil, "flight0")
	real := theNode().ContainerdSocket + ".real"
	r.check(os.Rename(theNode().ContainerdSocket, real))
	conn, err := proxy.Dial(real)
	r.check(err)
	type moment struct {
		forwarded         bool
		reached, released chan struct{}
	}
	moments := make(chan moment, 1)
	between, err := proxy.New(proxy.Config{Runtime: conn, Interceptors: map[string]proxy.Interceptor{
		runtimeapi.RuntimeService_CreateContainer_FullMethodName: func(_ context.Context, _ []byte, forward proxy.Forward) error {
			select {
			case m := <-moments:
				if m.forwarded {
					_, err = forward(nil)
				}
				close(m.reached)
				<-m.released
				if m.forwarded {
					return err
				}
			default:
			}
			_, err := forward(nil)
			return err
		}}})
	r.check(err)
	l, err := proxy.Listen(theNode().ContainerdSocket, real)
	r.check(err)
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- between.Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		conn.Close()
		r.check(os.Rename(real, theNode().ContainerdSocket))
		r.check(shared.Restart(cluster.Kubecri, nodeA))
	}()
	r.check(shared.Restart(cluster.Kubecri, nodeA)) // it finds the one in between

	want := map[string]holding{}
	for name, forwarded := range map[string]bool{"before": false, "after": true} {
		m := moment{forwarded, make(chan struct{}), make(chan struct{})}
		moments <- m
		r.create(newPod(name, nodeA, map[string]int64{"flight": 1}))
		select {
		case <-m.reached:
		case <-time.After(patience):
			close(m.released)
			r.Fatalf("waited %v for the container of pod %s to be created", patience, name)
		}
		if got := r.claims("flight"); len(got) != len(want)+1 {
			t.Errorf("%s: claims %v while the container is being created", name, got)
		}
		r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
		close(m.released)
		r.check(shared.Start(cluster.Kubecri, nodeA))
		p := r.awaitRunning(name)
		info, err := assignment.Granted(p.Annotations, string(p.UID), nodeA)
		r.check(err)
		main := info.RunningContainers["main"]
		grants, err := assignment.Grants(&main)
		r.check(err)
		want[grants[0].Slot.String()] = heldBy(p)
		r.awaitClaims("flight", want)
	}
	if len(want) != 2 {
		t.Errorf("two pods hold %v", want)
	}
	r.delete("before")
	r.delete("after")
	r.awaitClaims("flight", map[string]holding{})
}
