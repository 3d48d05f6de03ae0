package main

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nri"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
)

// runNRI is a plugin of the runtime until ctx is done.
func runNRI(ctx context.Context, o *options) error {
	logger := klog.FromContext(ctx)
	runtime, err := proxy.Dial(o.runtimeEndpoint)
	if err != nil {
		return fmt.Errorf("--runtime-endpoint: %w", err)
	}
	defer runtime.Close()
	client := runtimeapi.NewRuntimeServiceClient(runtime)
	n, err := newNode(ctx, o, runtime, metrics.New(registry{}))
	if err != nil {
		return err
	}
	n.nriPlugin, n.ownPod = o.nriName, ownPod(serviceAccount)
	plugin, err := nri.New(nri.Config{
		Node: o.nodeName, Socket: path(o.nriSocket), Name: o.nriName, Index: o.nriIndex,
		Admitter: n.admitter, Claims: n.claims, Condition: n.node.Set, Tracer: n.tracer,
	})
	if err != nil {
		return err
	}
	alive := func(context.Context) error { return nil } // who runs this does
	return n.work(ctx, o, nriEndpoints(plugin, client, n), alive, func(ctx context.Context) error {
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
