package main

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	"github.com/kubeslot/kubeslot/kubecri/nri"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
)

// runNRI is a plugin of the runtime until ctx is done.
func runNRI(ctx context.Context, o *options, runtime *grpc.ClientConn) error {
	logger := klog.FromContext(ctx)
	n, err := newScheduled(ctx, o, runtime)
	if err != nil {
		return err
	}
	mode := nodemode.Config{NRIPlugin: o.nriName}
	if own := ownPod(serviceAccount); own.Namespace != "" {
		mode.PodNamespace = kubecriNamespace(own, n.cluster.Pods.Lister())
	}
	n.node.Add("mode", mode.Plan())
	plugin, err := nri.New(nri.Config{
		Node: o.nodeName, Socket: path(o.nriSocket), Name: o.nriName, Index: o.nriIndex,
		Admitter: n.admitter, Claims: n.claims, Condition: n.node.Set, Tracer: n.tracer,
	})
	if err != nil {
		return err
	}
	connected := health.Check{Name: "nri", Run: func(context.Context) error { return plugin.Connected() }}
	return n.work(ctx, o, n.endpoints(connected, criCheck(n.cri, "")), isAlive, func(ctx context.Context) error {
		go func() {
			select {
			case <-plugin.Ready():
				notify(logger, systemd.Ready) // a kubelet that starts now starts nothing past us
			case <-ctx.Done():
			}
		}()
		logger.Info("Connecting to the runtime's NRI", "socket", path(o.nriSocket), "runtime", path(o.runtimeEndpoint), "node", o.nodeName)
		plugin.Run(ctx)
		return nil
	})
}
