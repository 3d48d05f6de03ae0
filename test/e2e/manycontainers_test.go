package e2e

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// containerd has more containers than it sends in a message: kubecri finds those that use
// slots all the same. The kubelet is told what containerd says, as if it had asked it.
func TestMoreContainersThanFitInAMessage(t *testing.T) {
	testAll(t, "freezes a kubelet and restarts kubecri")
	r := newRig(t)
	r.debugEcho("bulk", 3, nil, "bulk0")
	pods := []string{"one", "two"}
	held := map[string]holding{}
	for _, name := range pods {
		r.create(newPod(name, nodeA, map[string]int64{"bulk": 1}))
		held[r.agree(name, "bulk", 1)[0]] = heldBy(r.pod(name))
	}
	direct, asKubelet := r.criOfAnySize(theNode().ContainerdSocket), r.criOfAnySize(theNode().KubecriSocket)
	list := func(from runtimeapi.RuntimeServiceClient) error {
		_, err := from.ListContainers(r.ctx, &runtimeapi.ListContainersRequest{})
		return err
	}
	r.check(list(direct))

	// The kubelet would remove containers that it does not know.
	r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGSTOP))
	running := false
	run := func() {
		if !running {
			r.check(shared.Kill(cluster.Kubelet, nodeA, syscall.SIGCONT))
			running = true
		}
	}
	var ids []string
	remove := func() {
		for _, id := range ids {
			_, err := direct.RemoveContainer(r.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
			r.check(err)
		}
		ids = nil
	}
	defer run()
	defer remove()
	const each = 3 << 19 // bytes; 18 MiB in all, 9 MiB of them in each sandbox
	fill := map[string]string{"kubeslot.test/fill": strings.Repeat("x", each)}
	for _, name := range pods {
		c := r.containers(nodeA, r.pod(name))[0]
		for i := range 6 {
			labels := maps.Clone(c.Labels)
			labels["io.kubernetes.container.name"] = fmt.Sprint("fill", i)
			created, err := direct.CreateContainer(r.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: c.PodSandboxId,
				Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: labels["io.kubernetes.container.name"]},
					Image: c.Image, Labels: labels, Annotations: fill, Linux: &runtimeapi.LinuxContainerConfig{}},
				SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: r.ns, Uid: string(r.pod(name).UID)}}})
			r.check(err)
			ids = append(ids, created.ContainerId)
		}
	}
	refusal := func(err error) bool {
		return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "trying to send message larger than max")
	}
	if err := list(direct); !refusal(err) {
		t.Fatalf("containerd lists all containers in a message: %v", err)
	}
	if err := list(asKubelet); !refusal(err) {
		t.Errorf("the kubelet is told %v, want what containerd says", err)
	}

	// A kubecri that has just started knows of containers what it lists alone.
	r.check(shared.SetKubecriArgs(r.ctx, nodeA, "--claim-resync=1s"))
	defer func() { r.check(shared.SetKubecriArgs(r.ctx, nodeA)) }()
	const resyncs, failures = `kubecri_runtime_resyncs_total{result="success"}`, `kubecri_runtime_resyncs_total{result="error"}`
	r.await("kubecri to list the containers twice", func() (bool, string) {
		n := r.kubecriMetric(nodeA, resyncs)
		return n >= 2, fmt.Sprint(n, " times, ", r.kubecriMetric(nodeA, failures), " failures")
	})
	if n := r.kubecriMetric(nodeA, failures); n != 0 {
		t.Errorf("the list of containers failed %g times", n)
	}
	if n := r.kubecriMetric(nodeA, `kubecri_used_slots{configuration="bulk"}`); n != 2 {
		t.Errorf("containers use %g slots by kubecri's list, want 2", n)
	}
	for name := range held { // one that vanishes is made again for a container that is known
		r.check(r.releaseClaim(name))
	}
	r.awaitClaims("bulk", held)

	remove()
	run()
	r.check(list(asKubelet))
	r.create(newPod("three", nodeA, map[string]int64{"bulk": 1}))
	r.agree("three", "bulk", 1)
	for _, name := range pods {
		r.agree(name, "bulk", 1)
	}
}

// criOfAnySize is a client of a CRI socket that takes more than any runtime sends in a
// message.
func (r *rig) criOfAnySize(socket string) runtimeapi.RuntimeServiceClient {
	r.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(128<<20)))
	r.check(err)
	r.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}
