package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
	"github.com/kubeslot/kubeslot/discovery/mdns"
	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/discovery/onvif"
	"github.com/kubeslot/kubeslot/discovery/opcua"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/udev"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/discovery/usb"
	"github.com/kubeslot/kubeslot/kubecri/agent"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/kubecri/hostpaths"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// builtIn makes one of the discovery handlers that kubecri has in it.
type builtIn struct {
	name string
	make func(o *discoveryOptions) discovery.Handler
}

var builtIns = []builtIn{
	{debugecho.Name, func(o *discoveryOptions) discovery.Handler {
		return &debugecho.Handler{AvailabilityFile: o.debugEchoFile}
	}},
	{udev.Name, func(o *discoveryOptions) discovery.Handler { return &udev.Handler{Monitor: o.monitor} }},
	{onvif.Name, func(o *discoveryOptions) discovery.Handler { return &onvif.Handler{Interfaces: o.onvifInterfaces} }},
	{opcua.Name, func(*discoveryOptions) discovery.Handler { return &opcua.Handler{} }},
	{usb.Name, func(o *discoveryOptions) discovery.Handler { return &usb.Handler{Monitor: o.monitor} }},
	{mdns.Name, func(o *discoveryOptions) discovery.Handler { return &mdns.Handler{Interfaces: o.mdnsInterfaces} }},
}

// apart are those that parse what comes from a network, in the worker. They are discovery.Sharers.
var apart = []string{onvif.Name, opcua.Name, mdns.Name}

func builtInNames() []string {
	var names []string
	for _, b := range builtIns {
		names = append(names, b.name)
	}
	return names
}

// Values of --discovery-worker that are not the path of a socket.
const workerProcess, workerNone = "process", "none"

// discoveryOptions are the flags that concern discovery.
type discoveryOptions struct {
	handlers       []string // built-in ones that run
	directory      string   // of others' sockets; "" for no others
	allowedPaths   []string
	allowed        hostpaths.Allowed // allowedPaths
	grace          reports.Grace
	propertySpaces []string
	worker         string // workerProcess, workerNone, or a socket's path
	debugEchoFile  string
	tree           sysfs.Tree      // for udev and usb
	monitor        *uevent.Monitor // of the tree, which both share

	onvifInterfaces, mdnsInterfaces []string
}

func (o *discoveryOptions) addTo(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.handlers, "discovery-handlers", builtInNames(),
		"Discovery handlers of kubecri's own that run. Empty for none.")
	flags.StringVar(&o.directory, "discovery-handlers-directory", pb.DefaultDirectory,
		"Directory where discovery handlers in other processes find kubecri's socket, and where theirs are. It is made if absent. Empty takes none.")
	flags.StringVar(&o.worker, "discovery-worker", workerProcess,
		"Where the handlers onvif, opcua and mdns run, and what speaks to those that register. "+
			"process: in a child process without privileges and with 256 MiB of memory, whose end is not kubecri's. "+
			"none: in kubecri. An absolute path: in the process that listens on this socket, which is "+
			"kubecri discover with kubecri's own flags, as in the chart's pod.")
	flags.StringSliceVar(&o.allowedPaths, "handler-allowed-paths", hostpaths.Default,
		"Directories of the node of which discovery handlers may give containers mounts and device nodes, each as [handler=]directory. A handler that is named has the directories with its name alone, none with handler=.")
	flags.DurationVar(&o.grace.Shared, "handler-grace", reports.DefaultGrace.Shared,
		"How long devices that several nodes may reach stay when their discovery handler no longer works. After 30s of it new pods do not get them.")
	flags.DurationVar(&o.grace.Local, "handler-grace-local", reports.DefaultGrace.Local,
		"The same for devices that are this node's alone.")
	flags.StringSliceVar(&o.propertySpaces, "discovery-property-namespaces", nil,
		"Namespaces whose Secrets and ConfigMaps the discoveryProperties of any Configuration may refer to, besides those of its own namespace; * for all. Whoever may write a Configuration can read them.")
	flags.StringVar(&o.debugEchoFile, "debug-echo-availability-file", "",
		"The devices of the handler debugEcho vanish while this file contains OFFLINE. (default debug-echo-availability.txt in --state-dir)")
	flags.StringSliceVar(&o.onvifInterfaces, "onvif-interfaces", netif.Default,
		`Network interfaces on which the handler onvif looks for cameras: globs of names; "!" before one leaves interfaces out, and the last that matches counts.`)
	flags.StringSliceVar(&o.mdnsInterfaces, "mdns-interfaces", netif.Default,
		"The same for the handler mdns.")
	flags.StringVar(&o.tree.Sys, "sysfs", sysfs.DefaultSys, "Where the handlers udev and usb find the kernel's devices.")
	flags.StringVar(&o.tree.UdevData, "udev-data", sysfs.DefaultUdevData, "Where the handlers udev and usb find what udevd knows of devices, if it runs.")
	flags.StringVar(&o.tree.Dev, "dev", sysfs.DefaultDev, "Where the handlers udev and usb find device nodes.")
}

// complete fills defaults, and calls bad with what is wrong with which flag.
func (o *discoveryOptions) complete(stateDir string, bad func(flag string, err error)) {
	for _, name := range o.handlers {
		if !slices.Contains(builtInNames(), name) {
			bad("discovery-handlers", fmt.Errorf("there is no handler %q in kubecri: it has %s; others register by themselves",
				name, strings.Join(builtInNames(), ", ")))
		}
	}
	if o.directory != "" {
		bad("discovery-handlers-directory", absolute(o.directory))
	}
	if o.worker != workerProcess && o.worker != workerNone && !filepath.IsAbs(o.worker) {
		bad("discovery-worker", fmt.Errorf("%q: want %s, %s or the absolute path of a socket",
			o.worker, workerProcess, workerNone))
	}
	var err error
	o.allowed, err = hostpaths.Parse(o.allowedPaths)
	bad("handler-allowed-paths", err)
	for flag, d := range map[string]time.Duration{"handler-grace": o.grace.Shared, "handler-grace-local": o.grace.Local} {
		if d <= 0 {
			bad(flag, errors.New("want more than 0s, or a handler that restarts takes all its devices away"))
		}
	}
	if o.debugEchoFile == "" {
		o.debugEchoFile = filepath.Join(stateDir, "debug-echo-availability.txt")
	}
	for flag, path := range map[string]string{"sysfs": o.tree.Sys, "udev-data": o.tree.UdevData, "dev": o.tree.Dev} {
		bad(flag, absolute(path))
	}
}

// newAgent makes the agent, and the server that adds handlers to it; nil for no others. The config has what
// differs between modes.
func (o *options) newAgent(ctx context.Context, c *cluster, numbers *metrics.Metrics, config agent.Config) (
	*agent.Agent, *remote.Server, error) {
	registry, server, err := o.sources(ctx, numbers)
	if err != nil {
		return nil, nil, err
	}
	config.NodeName, config.Client, config.KubeClient, config.Recorder = o.nodeName, c.Client, c.Kube, c.events
	config.Configurations, config.Nodes = c.Configurations, c.Nodes
	config.Slices, config.SliceWritten = c.Slices, c.SliceWritten
	config.Registry, config.NoEndpoints = registry, server == nil
	config.Grace, config.AllowedPaths = o.discovery.grace, o.discovery.allowed
	config.PropertyNamespaces, config.Metrics = o.discovery.propertySpaces, numbers
	a, err := agent.New(config)
	return a, server, err
}

// sources returns a registry with the built-in handlers that are to run, and the
// server that adds others to it; nil for no others. A worker runs until ctx ends.
func (o *options) sources(ctx context.Context, numbers *metrics.Metrics) (*discovery.Registry, *remote.Server, error) {
	d, registry, worker := &o.discovery, discovery.NewRegistry(), o.worker(ctx)
	d.monitor = &uevent.Monitor{Tree: d.tree}
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: d.directory, Worker: worker,
		Dropped: func() { numbers.ConnectionDropped(metrics.ServerRegistration) },
		// Devices must not outlive the endpoint that they are lost from.
		ForgetAfter: max(remote.DefaultForgetAfter, 2*d.grace.Shared, 2*d.grace.Local)})
	if err != nil {
		return nil, nil, err
	}
	for _, b := range builtIns {
		if !slices.Contains(d.handlers, b.name) {
			continue
		}
		handler := b.make(d)
		if worker != nil && slices.Contains(apart, b.name) {
			handler = server.InWorker(handler.(discovery.Sharer))
		}
		registry.Add(discovery.NewSource(handler, discovery.BuiltInEndpoint))
	}
	if d.directory == "" {
		server = nil
	}
	return registry, server, nil
}
