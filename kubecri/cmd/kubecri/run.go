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
	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/advertise"
	"github.com/kubeslot/kubeslot/kubecri/agent"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/dra"
	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/hostpaths"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/repair"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
	"github.com/kubeslot/kubeslot/plugins/load"
	remoteplugins "github.com/kubeslot/kubeslot/plugins/remote"
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
	switch o.mode {
	case modeNRI:
		return runNRI(ctx, o)
	case modeDevicePlugin:
		return runDevicePlugin(ctx, o)
	}
	return runProxy(ctx, o)
}

// newTracer makes what --tracing-endpoint says; nil for none.
func newTracer(ctx context.Context, o *options) (*tracing.Tracer, error) {
	if o.tracing.Endpoint == "" {
		return nil, nil
	}
	return tracing.New(ctx, o.tracing)
}

// node is all that works beside the proxy or the plugin.
type node struct {
	runtime    *grpc.ClientConn
	cluster    *cluster
	agent      *agent.Agent
	handlers   *remote.Server // discovery handlers that register; nil without --discovery-handlers-directory
	advertiser *advertise.Advertiser
	claims     *claims.Claims
	cdi        *cdi.Injector // nil without --cdi-dir
	dra        *dra.Driver
	plugins    *soplugins.Plugins
	sockets    *remoteplugins.Devices // of plugins that are processes of their own; nil without --plugin-sockets
	badPlugins []*load.FileError      // files that were skipped
	admitter   *admit.Admitter
	tracer     *tracing.Tracer // nil without --tracing-endpoint
	metrics    *metrics.Metrics
	allowed    hostpaths.Allowed
	node       *nodewriter.Writer // of the Node object
	repairer   *repair.Repairer   // of containers that were created past us
	// In NRI mode: the plugin's name, and the pod that this runs in, if it does.
	nriPlugin string
	ownPod    apitypes.NamespacedName
	// runtimeIsBack, if set, is called whenever the runtime can be reached again.
	runtimeIsBack func(context.Context)
}

func newNode(ctx context.Context, o *options, runtime *grpc.ClientConn, numbers *metrics.Metrics) (*node, error) {
	tracer, err := newTracer(ctx, o)
	if err != nil {
		return nil, err
	}
	cluster, err := newCluster(o.kubeconfig, o.nodeName)
	if err != nil {
		return nil, err
	}
	cluster.afterRestore = readRestore(ctx, o.stateDir)
	n := &node{runtime: runtime, cluster: cluster, tracer: tracer, metrics: numbers, allowed: o.discovery.allowed}
	loaded, bad, err := loadPlugins(ctx, o, cluster.kube, numbers)
	if err != nil {
		return nil, err
	}
	n.badPlugins = bad
	n.plugins, n.sockets, err = o.sockets.plugins(soplugins.Config{
		Node: o.nodeName, Loaded: loaded, NotLoaded: notLoaded(bad), Timeout: o.devicesTimeout, Interval: o.advertiseInterval,
		Events: cluster.events, Metrics: numbers, Changed: func() { n.advertiser.Changed() },
		Labels: cluster.nodeLabels, Holders: cluster.holders,
	})
	if err != nil {
		return nil, err
	}
	registry, handlers, err := o.sources(ctx, numbers)
	if err != nil {
		return nil, err
	}
	n.handlers = handlers
	n.agent, err = agent.New(agent.Config{
		NodeName: o.nodeName, Client: cluster.client, KubeClient: cluster.kube,
		Configurations: cluster.Configurations, Slices: cluster.Slices, SliceCreated: cluster.SliceCreated, Nodes: cluster.Nodes, Recorder: cluster.events,
		Registry: registry, NoEndpoints: o.discovery.directory == "", Grace: o.discovery.grace, AllowedPaths: o.discovery.allowed, PropertyNamespaces: o.discovery.propertySpaces, Metrics: numbers,
		ReachChanged:  func() { n.advertiser.Changed() },
		NotifyHolders: func(instance, reason, message string) { n.claims.RecordEvents(instance, reason, message) },
		Held:          func() (map[string]bool, bool) { return n.claims.Held() },
	})
	if err != nil {
		return nil, err
	}
	n.node, err = nodewriter.New(nodewriter.Config{Node: o.nodeName, Client: cluster.kube, Nodes: cluster.Nodes,
		Interval: o.advertiseInterval, Metrics: numbers})
	if err != nil {
		return nil, err
	}
	n.node.Set(pluginsCondition(bad))
	n.advertiser, err = advertise.New(advertise.Config{
		Node: n.node, Pods: cluster.Pods, Slices: cluster.Slices, Configurations: cluster.Configurations,
		Reached: n.agent.Reached, Devices: n.plugins.NodeInfo, Labels: n.plugins.NodeLabels,
		Metrics: numbers,
	})
	if err != nil {
		return nil, err
	}
	n.claims, err = claims.New(claims.Config{
		Node: o.nodeName, Client: cluster.client,
		Claims: cluster.Claims, Configurations: cluster.Configurations, Nodes: cluster.Nodes, Pods: cluster.Pods,
		Namespaces: claims.NamespacesOf(cluster.kube), Runtime: runtimeapi.NewRuntimeServiceClient(runtime), Events: cluster.events,
		Believable: cluster.believable, HeldChanged: n.agent.HeldChanged,
		Leases: cluster.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease), Stopper: runtimeapi.NewRuntimeServiceClient(runtime),
		Grace: o.claimGrace, Resync: o.claimResync, Metrics: numbers, Tracer: tracer,
		Inspect: func(ctx context.Context, containers []*runtimeapi.Container, sandboxes map[string]*runtimeapi.PodSandbox) map[string]bool {
			return n.repairer.Inspect(ctx, containers, sandboxes)
		},
		Lacks: func(ctx context.Context, container *runtimeapi.Container, podAnnotations map[string]string) bool {
			return n.repairer.Lacks(ctx, container, podAnnotations)
		},
		Checkpoint: filepath.Join(o.stateDir, checkpointFile), Device: n.agent.Device,
	})
	if err != nil {
		return nil, err
	}
	n.repairer, err = repair.New(repair.Config{
		Node: o.nodeName, Runtime: runtimeapi.NewRuntimeServiceClient(runtime), Configuration: n.claims.Configuration, PluginsMarkedSince: n.claims.MarkedSince,
		Events: cluster.events, Conditions: n.node, Advice: o.bypassAdvice(), Metrics: numbers,
	})
	if err != nil {
		return nil, err
	}
	if o.cdiDir != "" {
		n.cdi = cdi.NewInjector(o.cdiDir, runtimeapi.NewRuntimeServiceClient(runtime))
	}
	if n.dra, err = o.newDRA(cluster, n.claims, n.agent, n.cdi, runtime); err != nil {
		return nil, err
	}
	verifier, err := o.verifier()
	if err != nil {
		return nil, err
	}
	n.admitter, err = admit.New(admit.Config{
		Node: o.nodeName, Pods: cluster.Pods.Lister(), Claims: n.claims,
		Device: func(ctx context.Context, instance string) (discovery.Device, error) {
			return waitDevice(ctx, instance, n.claims, n.agent, n.allowed)
		}, DeviceTimeout: o.deviceTimeout, Events: cluster.events, Metrics: numbers, Tracer: tracer,
		CDI: n.cdiDevice(), Plugins: n.plugins, Advertised: cluster.advertised,
		Runtime:  runtimeapi.NewRuntimeServiceClient(runtime),
		Verifier: verifier, VariableNamespaces: o.variableNamespaces,
	})
	return n, err
}

// bypassAdvice says what to do about containers that bypass kubecri.
func (o *options) bypassAdvice() string {
	if o.mode == modeNRI {
		return "kubecri was not connected to the runtime's NRI, or did not answer in time: see docs/nri.md for how the runtime requires it"
	}
	return fmt.Sprintf("Is the kubelet's containerRuntimeEndpoint %s? An upgrade by kubeadm sets it to the runtime's", o.listen)
}

// checkpointFile is the name of package checkpoint's file in --state-dir.
const checkpointFile = "checkpoint.json"

// waitDevice returns the device behind an Instance: the checkpoint's, or the one that the agent sees.
func waitDevice(ctx context.Context, instance string, before *claims.Claims, a *agent.Agent,
	allowed hostpaths.Allowed) (discovery.Device, error) {
	saved, ok := before.CheckpointedDevice(ctx, instance)
	if !ok {
		return a.WaitDevice(ctx, instance)
	}
	if err := allowed.Check(saved.Handler, saved.Device); err != nil { // the flag may have changed
		return discovery.Device{}, fmt.Errorf("device of Instance %s: %w", instance, err)
	}
	return saved.Device, nil
}

// cdiDevice is what admit.Config wants.
func (n *node) cdiDevice() func(context.Context, string, discovery.Device) string {
	if n.cdi == nil {
		return nil
	}
	return n.cdi.Device
}

// work runs the node until ctx is done and serve, which gets ctx, has returned.
func (n *node) work(ctx context.Context, o *options, e health.Endpoints, alive func(context.Context) error, serve func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	e, err := secured(e, o, n.cluster.kube, n.metrics)
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

// run works until ctx is done. Informers retry by themselves, without end.
func (n *node) run(ctx context.Context) {
	n.cluster.recordEvents()
	n.recordBadPlugins()
	var running sync.WaitGroup
	running.Go(func() { n.cluster.run(ctx) })
	running.Go(func() { n.plugins.Run(ctx) })
	if n.sockets != nil {
		running.Go(func() { n.sockets.Run(ctx) })
		running.Go(func() { n.cluster.followHolders(ctx, n.sockets.HoldersChanged) })
	}
	running.Go(func() { n.agent.Run(ctx) })
	if n.handlers != nil {
		running.Go(func() { n.handlers.Run(ctx) })
	}
	running.Go(func() { n.claims.Run(ctx) })
	running.Go(func() { n.dra.Run(ctx) })
	mode := nodemode.Config{NRIPlugin: n.nriPlugin}
	if n.ownPod.Namespace != "" {
		mode.PodNamespace = kubecriNamespace(n.ownPod, n.cluster.Pods.Lister())
	}
	n.node.Add("mode", mode.Plan())
	running.Go(func() { n.node.Run(ctx) })
	if n.cdi != nil {
		running.Go(func() { n.cdi.Run(ctx, n.agent) })
	}
	running.Go(func() {
		onReconnect(ctx, n.runtime, func() {
			if n.runtimeIsBack != nil {
				n.runtimeIsBack(ctx)
			}
			n.claims.Resync()
			if n.cdi != nil {
				n.cdi.Probe(ctx)
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

// onReconnect calls f whenever the runtime has come back.
func onReconnect(ctx context.Context, conn *grpc.ClientConn, f func()) {
	conn.Connect()
	state := conn.GetState()
	for conn.WaitForStateChange(ctx, state) {
		if state = conn.GetState(); state == connectivity.Ready {
			f()
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
