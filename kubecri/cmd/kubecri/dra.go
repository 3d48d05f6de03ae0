package main

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/dra"
)

// freeTimeout is how long a slot of a ResourceClaim is waited for: the kubelet waits 45 s for the answer.
const freeTimeout = 15 * time.Second

// newDRA makes the DRA driver, which is the same in each mode. byName is nil without --cdi-dir.
func (o *options) newDRA(c *cluster, room *claims.Claims, a *agent.Agent, byName *cdi.Injector,
	runtime *grpc.ClientConn) (*dra.Driver, error) {
	return dra.New(dra.Config{
		Node: o.nodeName, Kube: c.kube, Claims: room, Configurations: c.Configurations, SlotClaims: c.Claims,
		Slices: c.Slices, Pods: c.Pods, Nodes: c.Nodes,
		Device: func(ctx context.Context, instance string) (discovery.Device, error) {
			return waitDevice(ctx, instance, room, a, o.discovery.allowed)
		}, DeviceTimeout: o.deviceTimeout, FreeTimeout: freeTimeout, Seen: a, CDI: byName,
		Runtime:          runtimeapi.NewRuntimeServiceClient(runtime),
		KubeletDirectory: filepath.Dir(filepath.Clean(o.devicePlugin.directory)), Resync: o.claimResync,
	})
}
