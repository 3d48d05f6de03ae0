package main

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/intercept"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
)

// runProxy serves the kubelet until ctx is done: within milliseconds, whatever else
// is down.
func runProxy(ctx context.Context, o *options, runtime *grpc.ClientConn) error {
	logger := klog.FromContext(ctx)
	listen, runtimePath := path(o.listen), path(o.runtimeEndpoint)
	listener, err := systemd.Listener(listen)
	ours := err == nil && listener == nil // systemd's is as its unit says
	if ours {
		listener, err = proxy.Listen(listen, runtimePath)
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	socket, err := socketCheck(listen)
	if err != nil {
		return err
	}
	images, err := dialImages(o)
	if err != nil {
		return err
	}
	if images != nil {
		defer images.Close()
	}
	shimConn, err := proxy.Dial(o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer shimConn.Close()

	n, err := newScheduled(ctx, o, runtime)
	if err != nil {
		return err
	}
	n.node.Add("mode", nodemode.Config{}.Plan())
	shimConfig := proxy.Config{Runtime: runtime, Interceptors: intercept.New(n.admitter, n.claims, n.tracer),
		DrainTimeout: o.drainTimeout, Called: n.metrics.Call,
		Dropped: func() { n.metrics.ConnectionDropped(metrics.ServerCRI) }}
	if images != nil {
		shimConfig.Images = images
	}
	shim, err := proxy.New(shimConfig)
	if err != nil {
		return err
	}
	if ours {
		n.runtimeIsBack = func(ctx context.Context) {
			err := socket.Run(ctx) // it may be somebody else's by now
			if err == nil {
				err = proxy.CopyAccess(listen, runtimePath)
			}
			if err != nil && ctx.Err() == nil {
				logger.Error(err, "Our socket does not have the owner and mode of the runtime's")
			}
		}
	}
	checked := n.proxyEndpoints(socket, shimConn, images != nil)
	return n.work(ctx, o, checked, socket.Run, func(ctx context.Context) error {
		notify(logger, systemd.Ready) // a kubelet that connects is served from here on
		logger.Info("Serving the kubelet", "listen", listen, "runtime", runtimePath, "images", cmp.Or(o.imageEndpoint, o.runtimeEndpoint), "node", o.nodeName)
		return shim.Serve(ctx, listener)
	})
}

// dialImages connects to the image service; nil when the runtime has it.
func dialImages(o *options) (*grpc.ClientConn, error) {
	if o.imageEndpoint == "" {
		return nil, nil
	}
	conn, err := proxy.Dial(o.imageEndpoint)
	if err != nil {
		return nil, fmt.Errorf("--image-service-endpoint: %w", err)
	}
	return conn, nil
}
