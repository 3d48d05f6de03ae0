package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// kubecri is killed and starts again while the API server is away: the containers of pods
// that run, and have their claims, are created again with their devices. So is one that has
// a device of a device plugin of the kubelet besides.
func TestKubecriStartsWithoutAPIServer(t *testing.T) {
	testAll(t, "kills the API server and kubecri")
	r := newRig(t)
	dongle := r.kubeletPlugin("dongle")
	r.debugEcho("keep", 4, nil, "keep0")
	r.awaitAllocatable(nodeA, dongle, 1)
	two := newPod("two", nodeA, map[string]int64{"keep": 1})
	two.Spec.Containers = append(two.Spec.Containers, two.Spec.Containers[0])
	two.Spec.Containers[1].Name = "side"
	r.create(two)
	mixed := newPod("mixed", nodeA, map[string]int64{"keep": 1})
	mixed.Spec.Containers[0].Resources.Limits[dongle] = resource.MustParse("1")
	r.create(mixed)
	slots := map[string]string{} // by pod/container
	before := map[string]string{}
	held := map[string]holding{}
	for _, name := range []string{"two", "mixed"} {
		p := r.awaitRunning(name)
		info, err := assignment.Granted(p.Annotations, string(p.UID), nodeA)
		r.check(err)
		for container, c := range info.RunningContainers {
			grants, err := assignment.Grants(&c)
			r.check(err)
			if len(grants) != 1 {
				t.Fatalf("container %s of pod %s is assigned %v, want one slot", container, name, grants)
			}
			slots[name+"/"+container] = grants[0].Slot.String()
			held[grants[0].Slot.String()] = heldBy(p)
		}
		for _, c := range r.containers(nodeA, p) {
			before[name+"/"+c.Metadata.Name] = c.Id
		}
	}
	if len(slots) != 3 || len(before) != 3 {
		t.Fatalf("slots %v of containers %v, want three of each", slots, before)
	}
	r.awaitClaims("keep", held)
	runtime := r.cri(theNode().ContainerdSocket)

	r.check(shared.Kill(cluster.APIServer, "", syscall.SIGKILL))
	back := func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.check(shared.Start(cluster.APIServer, ""))
		r.check(shared.AwaitServing(ctx, cluster.APIServer, ""))
	}
	defer func() {
		if _, err := shared.PID(cluster.APIServer, ""); err != nil {
			back()
		}
	}()
	r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
	for _, id := range before { // as if they had crashed
		_, err := runtime.StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
		r.check(err)
	}
	r.check(shared.Start(cluster.Kubecri, nodeA))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubecri, nodeA))
	for container, slot := range slots {
		pod, name, _ := strings.Cut(container, "/")
		id := r.awaitAnotherOf(pod, name, before[container])
		out, err := runtime.ExecSync(r.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/app", "env"}, Timeout: 10})
		r.check(err)
		wants := []string{slot, "DEBUG_ECHO_DESCRIPTION=keep0"}
		if pod == "mixed" {
			wants = append(wants, "DONGLE=dongle-0")
		}
		for _, want := range wants {
			if !strings.Contains(string(out.Stdout), want) {
				t.Errorf("container %s, which started again, has no %q:\n%s", container, want, out.Stdout)
			}
		}
	}
	back()
	r.controlPlaneRuns() // a leader that was away from it for long has ended
	r.await("kubelet and kubecri to see the API server again", func() (bool, string) {
		again, seen := 0, ""
		for _, name := range []string{"two", "mixed"} {
			for _, s := range r.pod(name).Status.ContainerStatuses {
				seen += fmt.Sprintln(name, s.Name, s.RestartCount, s.State)
				if s.RestartCount > 0 && s.State.Running != nil {
					again++
				}
			}
		}
		return again == 3, seen
	})
	r.awaitClaims("keep", held)
	r.create(newPod("next", nodeA, map[string]int64{"keep": 1}))
	r.agree("next", "keep", 1)
}

// awaitAnotherOf waits until the pod's container runs with another id, which it returns. It
// asks the runtime by names alone: the API server may be away.
func (r *rig) awaitAnotherOf(pod, container, not string) (id string) {
	r.Helper()
	p := &v1.Pod{}
	p.Name = pod
	r.await(fmt.Sprintf("container %s of pod %s to run with another id than %q", container, pod, not), func() (bool, string) {
		list := r.containers(nodeA, p)
		for _, c := range list {
			if c.Metadata.Name == container && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Id != not {
				id = c.Id
			}
		}
		return id != "", fmt.Sprint(list)
	})
	return id
}
