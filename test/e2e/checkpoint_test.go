package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// kubecri starts while the API server is away: a container of a pod that runs, and has its
// claims, is created again with its devices.
func TestKubecriStartsWithoutAPIServer(t *testing.T) {
	r := newRig(t)
	r.debugEcho("keep", 2, nil, "keep0")
	holder := r.create(newPod("holder", nodeA, map[string]int64{"keep": 1}))
	slots := r.agree("holder", "keep", 1)
	first := r.containers(nodeA, holder)[0].Id
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
	r.check(shared.Restart(cluster.Kubecri, nodeA))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubecri, nodeA))
	_, err := runtime.StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: first}) // as if it had crashed
	r.check(err)
	again := r.awaitOtherContainer(holder, first)
	out, err := runtime.ExecSync(r.ctx, &runtimeapi.ExecSyncRequest{ContainerId: again.Id, Cmd: []string{"/app", "env"}, Timeout: 10})
	r.check(err)
	for _, want := range []string{slots[0], "DEBUG_ECHO_DESCRIPTION=keep0"} {
		if !strings.Contains(string(out.Stdout), want) {
			t.Errorf("the container that started again has no %q:\n%s", want, out.Stdout)
		}
	}
	back()
	r.await("kubelet and kubecri to see the API server again", func() (bool, string) {
		p := r.pod("holder")
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 1 && s[0].State.Running != nil, fmt.Sprint(s)
	})
	r.awaitClaims("keep", map[string]holding{slots[0]: heldBy(r.pod("holder"))})
	r.create(newPod("next", nodeA, map[string]int64{"keep": 1}))
	r.agree("next", "keep", 1)
}
