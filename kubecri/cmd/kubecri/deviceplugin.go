package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/component-base/metrics/legacyregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode"
	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
)

// devicePluginOptions are those of --mode=device-plugin.
type devicePluginOptions struct {
	directory    string
	podResources string
	instances    bool
}

func (o *devicePluginOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.directory, "kubelet-device-plugin-dir", "/var/lib/kubelet/device-plugins",
		"The kubelet's directory for device plugins, where --mode=device-plugin finds its kubelet.sock. In each mode "+
			"plugins and plugins_registry beside it are those of DRA drivers: kubecri is one once a Configuration "+
			"has spec.allocator DRA.")
	flags.StringVar(&o.podResources, "kubelet-pod-resources-socket", "unix:///var/lib/kubelet/pod-resources/kubelet.sock",
		"With --mode=device-plugin: the kubelet's pod-resources socket, which tells the devices that pods have.")
	flags.BoolVar(&o.instances, "instance-resources", true,
		"With --mode=device-plugin: also give each device a resource of its own, akri.sh/<instance>. A node of thousands of devices has as many in its status.")
}

func (o *devicePluginOptions) complete(bad func(flag string, err error)) {
	_, err := proxy.SocketPath(o.podResources)
	bad("kubelet-pod-resources-socket", err)
}

// dialPodResources connects to the kubelet's pod-resources once it is used.
func (o *devicePluginOptions) dialPodResources() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+path(o.podResources), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(proxy.MaxMessageBytes)))
	if err != nil {
		return nil, fmt.Errorf("--kubelet-pod-resources-socket: %w", err)
	}
	return conn, nil
}

// runDevicePlugin gives out slots by device plugins of the kubelet until ctx is done.
func runDevicePlugin(ctx context.Context, o *options) error {
	logger := klog.FromContext(ctx)
	if files, _ := filepath.Glob(filepath.Join(o.devices, "*.so")); len(files) > 0 {
		logger.Info("Warning: device plugins of KubeDevice are not loaded: with --mode=device-plugin nobody would assign their devices", "directory", o.devices, "files", len(files))
	}
	runtime, err := proxy.Dial(o.runtimeEndpoint)
	if err != nil {
		return fmt.Errorf("--runtime-endpoint: %w", err)
	}
	defer runtime.Close()
	podResources, err := o.devicePlugin.dialPodResources()
	if err != nil {
		return err
	}
	defer podResources.Close()
	tracer, err := newTracer(ctx, o)
	if err != nil {
		return err
	}
	cluster, err := newCluster(o.kubeconfig, o.nodeName)
	if err != nil {
		return err
	}
	cluster.afterRestore = readRestore(ctx, o.stateDir)
	numbers := metrics.New(registry{})
	registrySources, handlers, err := o.sources(ctx, numbers)
	if err != nil {
		return err
	}
	writer, err := nodewriter.New(nodewriter.Config{Node: o.nodeName, Client: cluster.kube, Nodes: cluster.Nodes,
		Metrics: numbers})
	if err != nil {
		return err
	}
	var plugins *devicepluginmode.Plugins
	discoverer, err := agent.New(agent.Config{
		NodeName: o.nodeName, Client: cluster.client, KubeClient: cluster.kube,
		Configurations: cluster.Configurations, Slices: cluster.Slices, SliceCreated: cluster.SliceCreated, Nodes: cluster.Nodes, Recorder: cluster.events,
		Registry: registrySources, NoEndpoints: o.discovery.directory == "", Grace: o.discovery.grace, AllowedPaths: o.discovery.allowed,
		PropertyNamespaces: o.discovery.propertySpaces, Metrics: numbers,
		NotifyHolders: func(instance, reason, message string) {
			plugins.NodeClaims().RecordEvents(instance, reason, message)
		},
		Held: func() (map[string]bool, bool) { return plugins.Held() },
	})
	if err != nil {
		return err
	}
	config := devicepluginmode.Config{
		Config: claims.Config{Node: o.nodeName, Client: cluster.client,
			Configurations: cluster.Configurations, Claims: cluster.Claims, Pods: cluster.Pods, Nodes: cluster.Nodes,
			Runtime: runtimeapi.NewRuntimeServiceClient(runtime), Events: cluster.events,
			Checkpoint: filepath.Join(o.stateDir, checkpointFile), Metrics: numbers, Tracer: tracer,
			HeldChanged: discoverer.HeldChanged, Believable: cluster.believable},
		Slices: cluster.Slices, Devices: discoverer.Devices,
		Device: func(ctx context.Context, instance string) (discovery.Device, error) {
			return waitDevice(ctx, instance, plugins.NodeClaims(), discoverer, o.discovery.allowed)
		},
		PodResources: podresourcesapi.NewPodResourcesListerClient(podResources),
		Directory:    o.devicePlugin.directory, NoInstances: !o.devicePlugin.instances, ListedChanged: writer.Wake,
	}
	var byName *cdi.Injector
	if o.cdiDir != "" {
		byName = cdi.NewInjector(o.cdiDir, runtimeapi.NewRuntimeServiceClient(runtime))
		config.CDI = byName.Device
	}
	if plugins, err = devicepluginmode.New(config); err != nil {
		return err
	}
	driver, err := o.newDRA(cluster, plugins.NodeClaims(), discoverer, byName, runtime)
	if err != nil {
		return err
	}
	writer.Add("mode", nodemode.Config{Served: plugins.Served}.Plan())

	cluster.recordEvents()
	if o.metricsAddress != noMetrics {
		endpoints, err := secured(health.Endpoints{Metrics: legacyregistry.Handler(), Ready: []health.Check{
			cluster.informersSynced(),
			{Name: "registered", Run: func(context.Context) error { return plugins.Registered() }},
			containersListed(plugins.NodeClaims().ResyncError), checkpointWritten(plugins.NodeClaims().CheckpointError),
			openFiles(),
		}}, o, cluster.kube, numbers)
		if err != nil {
			return err
		}
		go endpoints.Serve(ctx, o.metricsAddress)
	}
	notify(logger, systemd.Ready) // the kubelet needs not wait for us
	go systemd.Watchdog(ctx, func(context.Context) error { return nil })
	context.AfterFunc(ctx, func() { notify(logger, systemd.Stopping) })
	logger.Info("Giving out slots by device plugins of the kubelet", "directory", o.devicePlugin.directory, "runtime", path(o.runtimeEndpoint), "node", o.nodeName)

	var running sync.WaitGroup
	running.Go(func() { cluster.run(ctx) })
	running.Go(func() { discoverer.Run(ctx) })
	if handlers != nil {
		running.Go(func() { handlers.Run(ctx) })
	}
	running.Go(func() { plugins.Run(ctx) })
	running.Go(func() { driver.Run(ctx) })
	running.Go(func() { writer.Run(ctx) })
	if byName != nil {
		running.Go(func() { byName.Run(ctx, discoverer) })
		running.Go(func() { onReconnect(ctx, runtime, func() { byName.Probe(ctx) }) })
	}
	ended := make(chan struct{})
	go func() { defer close(ended); running.Wait() }()
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	select {
	case <-ended:
	case <-stopping.Done(): // whatever is undone is done by the next life
	}
	tracer.Shutdown(stopping)
	return nil
}
