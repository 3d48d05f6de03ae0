package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests to the API server
	_ "k8s.io/component-base/metrics/prometheus/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/install/check"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/serve/delegatedauth"
)

// noMetrics is the --metrics-bind-address that serves nothing, as in
// controller-runtime.
const noMetrics = "0"

// registry is the process's, which has Go's and client-go's metrics too.
type registry struct{}

func (registry) MustRegister(m ...componentmetrics.Registerable) { legacyregistry.MustRegister(m...) }

func (registry) CustomMustRegister(c ...componentmetrics.StableCollector) {
	legacyregistry.CustomMustRegister(c...)
}

// endpoints are kubecri's metrics and checks: a mode's own, and those that no mode is without.
func (n *node) endpoints(own ...health.Check) health.Endpoints {
	ready := append(own, n.cluster.informersSynced())
	if n.plugins != nil {
		ready = append(ready, n.devicePlugins())
	}
	return health.Endpoints{Metrics: legacyregistry.Handler(), Ready: append(ready, []health.Check{
		// Why it is not known what the runtime's containers use.
		{Name: "containers", Advice: true, Run: func(context.Context) error { return n.claims.ResyncError() }},
		// Why --state-dir does not have the node's claims, such as a full disk.
		{Name: "checkpoint", Advice: true, Run: func(context.Context) error {
			if err := n.claims.CheckpointError(); err != nil {
				return fmt.Errorf("the node's claims are not saved: containers with slots would wait if kubecri "+
					"started again without the API server: %w", err)
			}
			return nil
		}},
		openFiles(),
	}...)}
}

// criCheck asks the runtime; through says how, if not directly.
func criCheck(runtime runtimeapi.RuntimeServiceClient, through string) health.Check {
	return health.Check{Name: "cri", Run: func(ctx context.Context) error {
		_, err := runtime.Version(ctx, &runtimeapi.VersionRequest{})
		if err != nil {
			return fmt.Errorf("ask the runtime for its version%s: %w", through, err)
		}
		return nil
	}}
}

// proxyEndpoints are those of proxy mode. shim leads to our own socket, as the kubelet's connection does; images is
// whether the image service is another's than the runtime's.
func (n *node) proxyEndpoints(socket health.Check, shim grpc.ClientConnInterface, images bool) health.Endpoints {
	own := []health.Check{socket, criCheck(runtimeapi.NewRuntimeServiceClient(shim), " through our socket")}
	if images {
		own = append(own, health.Check{Name: "images", Run: func(ctx context.Context) error {
			return check.Images(ctx, runtimeapi.NewImageServiceClient(shim))
		}})
	}
	e := n.endpoints(own...)
	e.Live = []health.Check{socket}
	return e
}

// secured has the endpoints served as their address wants: off the loopback with TLS, and
// the metrics and what is wrong for those who may read them.
func secured(ctx context.Context, e health.Endpoints, o *options, kube kubernetes.Interface, numbers *metrics.Metrics) (
	health.Endpoints, error) {
	e.Dropped = func() { numbers.ConnectionDropped(metrics.ServerMetrics) }
	if o.metricsAddress == noMetrics || delegatedauth.Loopback(o.metricsAddress) {
		return e, nil
	}
	var err error
	if e.Guard, err = delegatedauth.New(kube); err != nil {
		return e, err
	}
	e.TLS, err = health.ServingTLS(ctx, o.tlsCertFile, o.tlsKeyFile, o.nodeName)
	return e, err
}

// devicePlugins tells which of them fail, and which required ones are away. It is advice: /readyz is
// the readiness of kubecri's pod, which a rollout of its DaemonSet waits for, and systemd's and the
// kubelet's question whether containers can be created. All but those of the plugin can.
func (n *node) devicePlugins() health.Check {
	return health.Check{Name: "device-plugins", Advice: true, Run: func(context.Context) error {
		var wrong []error
		for _, file := range notLoaded(n.badPlugins) {
			wrong = append(wrong, errors.New("not loaded: "+file))
		}
		return errors.Join(append(wrong, n.plugins.Failing())...)
	}}
}

// socketCheck remembers the socket file: a kubelet that reconnects finds us only
// while it is there and our server greets it. Call it once the socket is bound.
func socketCheck(path string) (health.Check, error) {
	bound, err := os.Lstat(path)
	if err != nil {
		return health.Check{}, err
	}
	return health.Check{Name: "socket", Run: func(ctx context.Context) error {
		now, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("the kubelet cannot connect: %w; restart kubecri", err)
		}
		if !os.SameFile(bound, now) {
			return fmt.Errorf("%s was replaced by something else: remove it and restart kubecri", path)
		}
		return greeted(ctx, path)
	}}, nil
}

// greeted connects as the kubelet does. The runtime has no part in that: it is
// our server that answers the connection's preface.
func greeted(ctx context.Context, path string) error {
	conn, err := proxy.Dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connect to %s: our server does not answer: %w", path, ctx.Err())
		}
	}
	return nil
}

// informersSynced tells which of the caches are empty yet.
func (c *cluster) informersSynced() health.Check {
	return health.Check{Name: "informers", Advice: true, Run: func(context.Context) error {
		var missing []string
		for _, of := range c.caches() {
			if !of.Informer.(cache.SharedIndexInformer).HasSynced() {
				missing = append(missing, of.Resource.GroupResource().String())
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%s not read from the API server yet: containers with devices are not created until then", strings.Join(missing, ", "))
		}
		return nil
	}}
}

// checkBindAddress wants "0" or host:port.
func checkBindAddress(address string) error {
	if address == noMetrics {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: want host:port, or %s for none: %w", address, noMetrics, err)
	}
	if host != "" && host != "localhost" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q: %q is not an IP address", address, host)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return errors.New(strconv.Quote(address) + ": want a port from 1 to 65535")
	}
	return nil
}
