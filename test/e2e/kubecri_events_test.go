package e2e

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container that is removed at the runtime's own socket, past kubecri, gives its slot back because of the runtime's
// event: kubecri need not ask for all containers, as it does every 30 s. It may do that meanwhile, but not with each
// of four.
func TestSlotOfContainerRemovedBehindKubecri(t *testing.T) {
	testAll(t, "freezes a kubelet")
	r := newRig(t)
	const pods = 4
	r.debugEcho("behind", pods, nil, "behind0")
	held, ids := map[string]holding{}, map[string]string{} // by slot
	for i := range pods {
		name := fmt.Sprint("p", i)
		r.create(newPod(name, nodeA, map[string]int64{"behind": 1}))
		slot, p := r.agree(name, "behind", 1)[0], r.pod(name)
		held[slot], ids[slot] = heldBy(p), r.containers(nodeA, p)[0].Id
	}

	r.check(shared.Kill("kubelet", nodeA, syscall.SIGSTOP)) // it would create the containers again
	defer func() { r.check(shared.Kill("kubelet", nodeA, syscall.SIGCONT)) }()
	conn, err := grpc.NewClient("unix://"+shared.Nodes()[0].ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	asked := func() float64 { return r.kubecriMetric(nodeA, `kubecri_runtime_resyncs_total{result="success"}`) }
	before := asked()
	for _, id := range ids {
		_, err = runtime.StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
		r.check(err)
	}
	r.await("kubecri to ask what the stops mean", func() (bool, string) { return asked() > before, "" })
	if got := r.claims("behind"); !maps.Equal(got, held) {
		t.Errorf("with the containers stopped only, the claims are %v, want %v", got, held)
	}
	byEvent := 0
	for slot, id := range ids {
		before := asked()
		_, err = runtime.RemoveContainer(r.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		r.check(err)
		delete(held, slot)
		r.awaitClaims("behind", held)
		if asked() == before {
			byEvent++
		}
	}
	if byEvent == 0 {
		t.Error("no slot was free before kubecri had asked for all containers")
	}
}
