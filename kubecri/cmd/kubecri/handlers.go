package main

import (
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
	{udev.Name, func(o *discoveryOptions) discovery.Handler { return &udev.Handler{Tree: o.tree, Monitor: o.monitor} }},
	{onvif.Name, func(o *discoveryOptions) discovery.Handler { return &onvif.Handler{Interfaces: o.onvifInterfaces} }},
	{opcua.Name, func(*discoveryOptions) discovery.Handler { return &opcua.Handler{} }},
	{usb.Name, func(o *discoveryOptions) discovery.Handler { return &usb.Handler{Tree: o.tree, Monitor: o.monitor} }},
	{mdns.Name, func(o *discoveryOptions) discovery.Handler { return &mdns.Handler{Interfaces: o.mdnsInterfaces} }},
}

func builtInNames() []string {
	var names []string
	for _, b := range builtIns {
		names = append(names, b.name)
	}
	return names
}

// discoveryOptions are the flags that concern discovery.
type discoveryOptions struct {
	handlers       []string // built-in ones that run
	directory      string   // of others' sockets; "" for no others
	allowedPaths   []string
	allowed        hostpaths.Allowed // allowedPaths
	grace          reports.Grace
	propertySpaces []string
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
	if o.directory != "" && !filepath.IsAbs(o.directory) {
		bad("discovery-handlers-directory", fmt.Errorf("%q is not an absolute path", o.directory))
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
		if !filepath.IsAbs(path) {
			bad(flag, fmt.Errorf("%q is not an absolute path", path))
		}
	}
}

// sources returns a registry with the built-in handlers that are to run, and the
// server that adds others to it; nil for no others.
func (o *discoveryOptions) sources(numbers *metrics.Metrics) (*discovery.Registry, *remote.Server, error) {
	o.monitor = &uevent.Monitor{Tree: o.tree}
	registry := discovery.NewRegistry()
	for _, b := range builtIns {
		if slices.Contains(o.handlers, b.name) {
			registry.Add(discovery.NewSource(b.make(o), discovery.BuiltInEndpoint))
		}
	}
	if o.directory == "" {
		return registry, nil, nil
	}
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: o.directory, Dropped: func() { numbers.ConnectionDropped(metrics.ServerRegistration) },
		// Devices must not outlive the endpoint that they are lost from.
		ForgetAfter: max(remote.DefaultForgetAfter, 2*o.grace.Shared, 2*o.grace.Local)})
	return registry, server, err
}
