package e2e

import (
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container that is removed at the runtime's own socket, past kubecri, gives
// its slot back at once: long before kubecri's next resync.
func TestSlotOfContainerRemovedBehindKubecri(t *testing.T) {
	testAll(t, "freezes a kubelet")
	r := newRig(t)
	r.debugEcho("behind", 1, nil, "behind0")
	r.create(newPod("p", nodeA, map[string]int64{"behind": 1}))
	slots := r.agree("p", "behind", 1)
	id := r.containers(nodeA, r.pod("p"))[0].Id

	r.check(shared.Kill("kubelet", nodeA, syscall.SIGSTOP)) // it would create the container again
	defer func() { r.check(shared.Kill("kubelet", nodeA, syscall.SIGCONT)) }()
	conn, err := grpc.NewClient("unix://"+shared.Nodes()[0].ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	_, err = runtime.StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
	r.check(err)
	if got := r.claims("behind"); len(got) != 1 {
		t.Errorf("slot %s was released with its container stopped only: %v", slots[0], got)
	}
	_, err = runtime.RemoveContainer(r.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	r.check(err)
	removed := time.Now()
	r.awaitClaims("behind", map[string]holding{})
	if took := time.Since(removed); took > 10*time.Second { // a resync comes every 30 s
		t.Errorf("the slot was free after %s", took)
	}
}
