package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode"
	"github.com/kubeslot/kubeslot/kubecri/health"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/systemd"
	"github.com/kubeslot/kubeslot/plugins/load"
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
	conn, err := proxy.Dial(o.podResources)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-pod-resources-socket: %w", err)
	}
	return conn, nil
}

// runDevicePlugin gives out slots by device plugins of the kubelet until ctx is done.
func runDevicePlugin(ctx context.Context, o *options, runtime *grpc.ClientConn) error {
	logger := klog.FromContext(ctx)
	if files, _ := load.Files(o.devices); len(files) > 0 {
		logger.Info("Warning: device plugins of KubeDevice are not loaded: with --mode=device-plugin nobody would assign their devices", "directory", o.devices, "files", len(files))
	}
	podResources, err := o.devicePlugin.dialPodResources()
	if err != nil {
		return err
	}
	defer podResources.Close()
	n, err := newNode(ctx, o, runtime)
	if err != nil {
		return err
	}
	plugins, err := devicepluginmode.New(devicepluginmode.Config{
		Config: n.claimsConfig(o), Slices: n.cluster.Slices, Devices: n.agent.Devices, Device: n.device,
		CDI:          n.cdi.Device,
		PodResources: podresourcesapi.NewPodResourcesListerClient(podResources),
		Directory:    o.devicePlugin.directory, NoInstances: !o.devicePlugin.instances, ListedChanged: n.node.Wake,
	})
	if err != nil {
		return err
	}
	n.claims = plugins.NodeClaims()
	n.works = append(n.works, plugins.Run)
	if err := n.addDRA(o); err != nil {
		return err
	}
	n.node.Add("mode", nodemode.Config{Served: plugins.Served}.Plan())
	registered := health.Check{Name: "registered", Run: func(context.Context) error { return plugins.Registered() }}
	return n.work(ctx, o, n.endpoints(registered), isAlive, func(ctx context.Context) error {
		notify(logger, systemd.Ready) // the kubelet needs not wait for us
		logger.Info("Giving out slots by device plugins of the kubelet", "directory", o.devicePlugin.directory,
			"runtime", path(o.runtimeEndpoint), "node", o.nodeName)
		<-ctx.Done()
		return nil
	})
}
