package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/advertise"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/repair"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
)

// newScheduled makes the node of proxy mode and of NRI mode: its containers get what the scheduler has assigned
// to them.
func newScheduled(ctx context.Context, o *options, runtime *grpc.ClientConn) (*node, error) {
	n, err := newNode(ctx, o, runtime)
	if err != nil {
		return nil, err
	}
	cluster := n.cluster
	if err := n.addPlugins(ctx, o); err != nil {
		return nil, err
	}
	n.advertiser, err = advertise.New(advertise.Config{
		Node: n.node, Pods: cluster.Pods, Slices: cluster.Slices, Configurations: cluster.Configurations,
		Reached: n.agent.Reached, Devices: n.plugins.NodeInfo, Labels: n.plugins.NodeLabels,
		Metrics: n.metrics,
	})
	if err != nil {
		return nil, err
	}
	config := n.claimsConfig(o)
	config.Namespaces, config.Device = claims.NamespacesOf(cluster.Kube), n.agent.Device
	config.Leases, config.Stopper = cluster.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease), n.cri
	config.Grace, config.Resync = o.claimGrace, o.claimResync
	config.Inspect = func(ctx context.Context, containers []*runtimeapi.Container,
		sandboxes map[string]*runtimeapi.PodSandbox) map[string]bool {
		return n.repairer.Inspect(ctx, containers, sandboxes)
	}
	if n.claims, err = claims.New(config); err != nil {
		return nil, err
	}
	n.works = append(n.works, n.claims.Run)
	n.repairer, err = repair.New(repair.Config{
		Node: o.nodeName, Runtime: n.cri, Configuration: n.claims.Configuration,
		PluginsMarkedSince: n.claims.MarkedSince,
		Events:             cluster.events, Conditions: n.node, Advice: o.bypassAdvice(), Metrics: n.metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := n.addDRA(o); err != nil {
		return nil, err
	}
	verifier, err := o.verifier()
	if err != nil {
		return nil, err
	}
	n.admitter, err = admit.New(admit.Config{
		Node: o.nodeName, Pods: cluster.Pods.Lister(), Claims: n.claims,
		Device: n.device, DeviceTimeout: o.deviceTimeout, Events: cluster.events, Metrics: n.metrics, Tracer: n.tracer,
		CDI: n.cdi.Device, CDIUsable: n.cdi.Usable, Plugins: n.plugins, Advertised: cluster.advertised, Runtime: n.cri,
		Verifier: verifier, VariableNamespaces: o.variableNamespaces,
	})
	return n, err
}

// addPlugins makes the node's device plugins: .so files, and processes that serve sockets.
func (n *node) addPlugins(ctx context.Context, o *options) error {
	loaded, bad, err := loadPlugins(ctx, o, n.cluster.Kube, n.metrics)
	if err != nil {
		return err
	}
	n.badPlugins = bad
	n.node.Set(pluginsCondition(bad))
	plugins, err := soplugins.New(soplugins.Config{
		Node: o.nodeName, Remote: o.remote, Loaded: loaded, NotLoaded: notLoaded(bad), Timeout: o.devicesTimeout,
		Interval: o.advertiseInterval,
		Events:   n.cluster.events, Metrics: n.metrics, Changed: func() { n.advertiser.Changed() },
		Labels: n.cluster.nodeLabels, Holders: n.cluster.holders,
	})
	if err != nil {
		return err
	}
	n.plugins = plugins
	n.works = append(n.works, plugins.Run,
		func(ctx context.Context) { n.cluster.followHolders(ctx, plugins.HoldersChanged) })
	return nil
}

// bypassAdvice says what to do about containers that bypass kubecri.
func (o *options) bypassAdvice() string {
	if o.mode == modeNRI {
		return "kubecri was not connected to the runtime's NRI, or did not answer in time: " +
			"see docs/nri.md for how the runtime requires it"
	}
	return fmt.Sprintf("Is the kubelet's containerRuntimeEndpoint %s? An upgrade by kubeadm sets it to the runtime's",
		o.listen)
}
