package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/advertise"
	"github.com/kubeslot/kubeslot/kubecri/agent"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/hostpaths"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/repair"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
	"github.com/kubeslot/kubeslot/plugins/load"
)

// stopTimeout bounds what an ending process waits for besides requests: until it
// has ended, the next one is not started, and the kubelet is not served.
const stopTimeout = 300 * time.Millisecond

// run works until ctx is done. Everything is made before anything is started, and
// nothing that is made needs the API server or the runtime.
func run(ctx context.Context, o *options) error {
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return fmt.Errorf("make --state-dir: %w", err)
	}
	checkDescriptors(ctx)
	release, err := cleanup.Hold(o.stateDir) // against `kubecri cleanup`
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	defer release()
	runtime, err := proxy.Dial(o.runtimeEndpoint)
	if err != nil {
		return fmt.Errorf("--runtime-endpoint: %w", err)
	}
	defer runtime.Close()
	switch o.mode {
	case modeNRI:
		return runNRI(ctx, o, runtime)
	case modeDevicePlugin:
		return runDevicePlugin(ctx, o, runtime)
	}
	return runProxy(ctx, o, runtime)
}

// node is all that works beside the door by which containers come: the proxy, the NRI plugin, or the
// kubelet's device plugins.
type node struct {
	runtime *grpc.ClientConn
	cri     runtimeapi.RuntimeServiceClient // of the runtime
	cluster *cluster
	agent   *agent.Agent
	claims  *claims.Claims
	cdi     *cdi.Injector   // nil without --cdi-dir
	tracer  *tracing.Tracer // nil without --tracing-endpoint
	metrics *metrics.Metrics
	node    *nodewriter.Writer // of the Node object
	allowed hostpaths.Allowed
	// works are what runs from when all is made until the process ends.
	works []func(context.Context)
	// runtimeIsBack, if set, is called whenever the runtime can be reached again.
	runtimeIsBack func(context.Context)

	// Of proxy and NRI mode, see newScheduled; nil in device-plugin mode.
	advertiser *advertise.Advertiser
	plugins    *soplugins.Plugins
	badPlugins []*load.FileError // files that were skipped
	admitter   *admit.Admitter
	repairer   *repair.Repairer // of containers that were created past us
}

// newNode makes what is the same in each mode, which adds claims.
func newNode(ctx context.Context, o *options, runtime *grpc.ClientConn) (*node, error) {
	cluster, err := newCluster(o.kubeconfig, o.nodeName)
	if err != nil {
		return nil, err
	}
	cluster.afterRestore = readRestore(ctx, o.stateDir)
	n := &node{runtime: runtime, cri: runtimeapi.NewRuntimeServiceClient(runtime), cluster: cluster,
		metrics: metrics.New(registry{}), allowed: o.discovery.allowed}
	if o.tracing.Endpoint != "" {
		if n.tracer, err = tracing.New(ctx, o.tracing); err != nil {
			return nil, err
		}
	}
	n.works = append(n.works, cluster.run)
	n.node, err = nodewriter.New(nodewriter.Config{Node: o.nodeName, Client: cluster.Kube, Nodes: cluster.Nodes,
		Interval: o.advertiseInterval, Metrics: n.metrics})
	if err != nil {
		return nil, err
	}
	n.works = append(n.works, n.node.Run)
	var handlers *remote.Server // discovery handlers that register; nil without --discovery-handlers-directory
	n.agent, handlers, err = o.newAgent(ctx, cluster, n.metrics, agent.Config{
		ReachChanged: func() {
			if n.advertiser != nil {
				n.advertiser.Changed()
			}
		},
		NotifyHolders: func(instance, reason, message string) { n.claims.RecordEvents(instance, reason, message) },
		Held:          func() (map[string]bool, bool) { return n.claims.Held() },
	})
	if err != nil {
		return nil, err
	}
	n.works = append(n.works, n.agent.Run)
	if handlers != nil {
		n.works = append(n.works, handlers.Run)
	}
	if o.cdiDir != "" {
		n.cdi = cdi.NewInjector(o.cdiDir, n.cri)
		n.works = append(n.works, func(ctx context.Context) { n.cdi.Run(ctx, n.agent) })
	}
	return n, nil
}

// claimsConfig is that of the node's claims, as far as it is the same in each mode.
func (n *node) claimsConfig(o *options) claims.Config {
	return claims.Config{
		Node: o.nodeName, Client: n.cluster.Client, Claims: n.cluster.Claims, Pods: n.cluster.Pods,
		Configurations: n.cluster.Configurations, Nodes: n.cluster.Nodes, Runtime: n.cri, Events: n.cluster.events,
		Believable: n.cluster.believable, HeldChanged: n.agent.HeldChanged,
		Checkpoint: filepath.Join(o.stateDir, cleanup.CheckpointFile), Metrics: n.metrics, Tracer: n.tracer,
	}
}

// device returns the device behind an Instance: the checkpoint's, or the one that the agent sees, for which
// it waits.
func (n *node) device(ctx context.Context, instance string) (discovery.Device, error) {
	saved, ok := n.claims.CheckpointedDevice(ctx, instance)
	if !ok {
		return n.agent.WaitDevice(ctx, instance)
	}
	if err := n.allowed.Check(saved.Handler, saved.Device); err != nil { // the flag may have changed
		return discovery.Device{}, fmt.Errorf("device of Instance %s: %w", instance, err)
	}
	return saved.Device, nil
}

// work runs the node until ctx is done and serve, which gets ctx, has returned.
func (n *node) work(ctx context.Context, o *options, e health.Endpoints, alive func(context.Context) error, serve func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	e, err := secured(ctx, e, o, n.cluster.Kube, n.metrics)
	if err != nil {
		return err
	}
	// Requests that are drained still change claims, so the rest goes on until serve
	// has ended.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); n.run(background) }()
	if o.metricsAddress != noMetrics {
		go e.Serve(background, o.metricsAddress)
	}
	go systemd.Watchdog(background, alive)
	context.AfterFunc(ctx, func() { notify(logger, systemd.Stopping) })
	err = serve(ctx)
	enough := time.After(stopTimeout)
	draining, cancel := context.WithTimeout(background, stopTimeout)
	n.claims.Drain(draining)
	n.tracer.Shutdown(draining)
	cancel()
	stop()
	select {
	case <-ended:
	case <-enough:
		// A kill would be as good: whatever is undone is done by the next life.
		logger.V(2).Info("Ended without waiting for all background work", "timeout", stopTimeout)
	}
	return err
}

// isAlive is for a process that is alive while it runs.
func isAlive(context.Context) error { return nil }

// run works until ctx is done. Informers retry by themselves, without end.
func (n *node) run(ctx context.Context) {
	n.cluster.recordEvents()
	n.recordBadPlugins()
	var running sync.WaitGroup
	for _, work := range n.works {
		running.Go(func() { work(ctx) })
	}
	running.Go(func() {
		onReconnect(ctx, n.runtime, func(ctx context.Context) {
			if n.runtimeIsBack != nil {
				n.runtimeIsBack(ctx)
			}
			n.claims.Resync()
			if n.cdi != nil {
				n.cdi.Follow(ctx)
			}
		})
	})
	running.Wait()
}

// notify tells systemd, if there is one.
func notify(logger klog.Logger, state string) {
	if err := systemd.Notify(state); err != nil {
		logger.Error(err, "systemd does not know our state")
	}
}

// onReconnect calls f when the runtime is there, and whenever it has come back. f's context is done when it
// has gone again.
func onReconnect(ctx context.Context, conn *grpc.ClientConn, f func(context.Context)) {
	for {
		conn.Connect() // for nobody may ask it anything
		state := conn.GetState()
		there, gone := context.WithCancel(ctx)
		var running sync.WaitGroup
		if state == connectivity.Ready {
			running.Go(func() { f(there) })
		}
		changed := conn.WaitForStateChange(ctx, state)
		gone()
		running.Wait()
		if !changed {
			return
		}
	}
}

// path is SocketPath of an endpoint that has been checked.
func path(endpoint string) string {
	p, err := proxy.SocketPath(endpoint)
	if err != nil {
		panic(err)
	}
	return p
}
