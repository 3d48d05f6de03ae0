package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// forgets is how long a kubelet remembers a device plugin that is away
// (devicemanager, endpointStopGracePeriod); it has no flag for it.
const forgets = 5 * time.Minute

// kubecri is away for longer than the kubelet remembers its plugins: the node's amounts
// become 0, and pods run on with what they have. A container that ends does not start
// again. With kubecri all is as before. It takes seven minutes: `make test-device-plugin-long`.
func TestKubecriAwayForLong(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("takes seven minutes: run `make test-device-plugin-long` as root")
	}
	r := newRig(t)
	r.ctx = context.Background()
	in := r.configuration("long", 3, nil, "east")
	r.awaitAmounts(nodeA, map[string]string{"long": "1/1", in[0]: "3/3"})
	r.run(newPod("stays", nodeA, "main=long:1"))
	r.run(newPod("restarts", nodeA, "main=long:1"))
	held, id, usage := r.slots("restarts"), r.containers("stays")[0].Id, r.usage()
	r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
	away := time.Now()
	r.awaitAmounts(nodeA, map[string]string{"long": "3/0", in[0]: "3/0"})
	<-time.After(forgets - time.Since(away))
	r.awaitAmounts(nodeA, map[string]string{"long": "0/0", in[0]: "0/0"})
	t.Logf("the kubelet forgot the resources after %s", time.Since(away).Round(time.Second))

	conn, err := grpc.NewClient("unix://"+shared.CRISocket(nodeA), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).StopContainer(r.ctx, &runtimeapi.StopContainerRequest{ContainerId: r.containers("restarts")[0].Id})
	r.check(err)
	r.await("the kubelet to refuse to start the container again", func() (bool, string) {
		list, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=restarts"})
		r.check(err)
		seen := ""
		for _, e := range list.Items {
			seen += e.Reason + ": " + e.Message + "\n"
		}
		return strings.Contains(seen, "endpoint not found in cache for a registered resource"), seen
	})

	r.check(shared.Start(cluster.Kubecri, nodeA))
	r.awaitAmounts(nodeA, map[string]string{"long": "3/3", in[0]: "3/1"})
	r.await("pod restarts to run again", func() (bool, string) {
		s := r.pod("restarts").Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil, fmt.Sprint(s)
	})
	if now := r.slots("restarts"); !slices.Equal(now, held) {
		t.Errorf("the container has %v after its restart, had %v", now, held)
	}
	for slot, who := range r.usage() {
		if usage[slot] != who {
			t.Errorf("slot %s was %q and is %q", slot, usage[slot], who)
		}
	}
	if now := r.usage(); len(now) != len(usage) {
		t.Errorf("slots were %v and are %v", usage, now)
	}
	if now := r.containers("stays"); len(now) != 1 || now[0].Id != id {
		t.Errorf("the container was %s, and is %v", id, now)
	}
	r.run(newPod("after", nodeA, "main=long:1"))
	r.awaitAmounts(nodeA, map[string]string{"long": "3/3", in[0]: "3/0"})
}
