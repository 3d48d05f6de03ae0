package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// socketOptions are about device plugins that are processes of their own.
type socketOptions struct {
	directory string // "" for none
	policies  map[string]string
	timeout   time.Duration
}

func (o *socketOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.directory, "plugin-sockets", registration.DevicesDirectory,
		"Directory where device plugins that are processes of their own make their sockets, *.sock. It may be absent, "+
			"and plugins may come and go. Empty for none.")
	flags.StringToStringVar(&o.policies, "plugin-policy", nil,
		"What to do while a plugin of --plugin-sockets is away: `NAME=required|ignore,...`. required, the default: "+
			"refuse containers that were assigned its devices or may have been; one that is named here is missed from "+
			"the start. ignore: refuse only containers that were assigned its devices.")
	flags.DurationVar(&o.timeout, "plugin-timeout", remote.DefaultDeviceTimeout,
		"How long a call of a plugin of --plugin-sockets may take, at most --cridevices-timeout.")
}

func (o *socketOptions) complete(most time.Duration, bad func(flag string, err error)) {
	if o.directory != "" {
		bad("plugin-sockets", absolute(o.directory))
	}
	if o.timeout < 100*time.Millisecond || o.timeout > most {
		bad("plugin-timeout", fmt.Errorf("%s: want at least 100ms, and at most --cridevices-timeout, which is %s",
			o.timeout, most))
	}
}

// plugins makes the node's device plugins: those of the configuration, and those of the sockets,
// which are connected while what is returned runs; nil where there are none.
func (o *socketOptions) plugins(config soplugins.Config) (*soplugins.Plugins, *remote.Devices, error) {
	var sockets *remote.Devices
	if o.directory != "" {
		config.Sockets = func(ctx context.Context) { sockets.Known(ctx) }
	}
	plugins, err := soplugins.New(config)
	if err != nil || o.directory == "" {
		return plugins, nil, err
	}
	sockets, err = remote.NewDevices(remote.DevicesConfig{
		Folder: o.directory, Policies: o.policies, Node: config.Node, Timeout: o.timeout, Holders: config.Holders,
		Added: func(d *remote.Device) (wake func()) { return plugins.Add(d, o.directory) },
	})
	return plugins, sockets, err
}

// nodeLabels returns the labels of this node's Node. It waits until the Node is known, or ctx is done.
func (c *cluster) nodeLabels(ctx context.Context) (labels map[string]string, known bool) {
	if !cache.WaitForCacheSync(ctx.Done(), c.Nodes.Informer().HasSynced) {
		return nil, false
	}
	node, err := c.Nodes.Lister().Get(c.node)
	if err != nil {
		return nil, false // there is none yet
	}
	return node.Labels, true
}

// advertised reports whether this node's Node says that device plugins of kubecri give out a resource.
func (c *cluster) advertised(name types.ResourceName) bool {
	node, err := c.Nodes.Lister().Get(c.node)
	return err == nil && slices.Contains(v1alpha1.PluginResources(node), corev1.ResourceName(name))
}

// holders returns the containers of this node that were assigned anything of device plugins; not ok
// until its pods are known.
func (c *cluster) holders() (all []remote.Holder, ok bool) {
	if !c.Pods.Informer().HasSynced() {
		return nil, false
	}
	pods, err := c.Pods.Lister().List(labels.Everything())
	for _, pod := range pods {
		all = append(all, holdersOf(pod)...)
	}
	return all, err == nil
}

// holdersOf returns the containers of a pod that were assigned anything of device plugins; none once
// the pod has ended.
func holdersOf(pod *corev1.Pod) []remote.Holder {
	if informers.PodEnded(pod) {
		return nil
	}
	info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil || info == nil {
		return nil // its containers are refused, or have nothing
	}
	var all []remote.Holder
	for name, c := range info.Containers() {
		if len(soplugins.Assigned(&c)) == 0 {
			continue
		}
		from := maps.Clone(c.AllocateFrom)
		maps.DeleteFunc(from, func(want, _ types.ResourceName) bool { return soplugins.IsSlot(want) })
		all = append(all, remote.Holder{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
			Container: name, AllocateFrom: from})
	}
	return all
}

// followHolders calls changed when holders may return something else, until ctx is done.
func (c *cluster) followHolders(ctx context.Context, changed func()) {
	registration, err := c.Pods.Informer().AddEventHandler(informers.OnChange(changed))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Device plugins are not sent which containers hold their devices")
		return
	}
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		changed() // there may be no pods
	}
}
