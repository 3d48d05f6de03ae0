package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"

	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

const description = `kubecri listens as the kubelet's container runtime endpoint and forwards every
CRI call to the runtime. When a container is created whose pod was assigned
device slots, it claims them in the Instances' deviceUsage and adds the devices'
environment, mounts and device nodes; it releases them when the container is
gone. It also discovers devices, keeps their Instances, and advertises them as
the node's resources.

Start it before the kubelet, and give the kubelet --listen's value as its
containerRuntimeEndpoint.`

// options are the command line.
type options struct {
	listen          string
	runtimeEndpoint string
	drainTimeout    time.Duration

	nodeName   string
	kubeconfig string

	claimGrace    time.Duration
	claimResync   time.Duration
	deviceTimeout time.Duration

	advertiseInterval time.Duration
	stateDir          string
	metricsAddress    string
	debugEchoFile     string

	logging *logsapi.LoggingConfiguration
}

func newOptions() *options {
	return &options{logging: logsapi.NewLoggingConfiguration()}
}

func newCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:          "kubecri",
		Short:        "Kubeslot's node agent and CRI shim",
		Long:         description,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := o.complete(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			return run(ctx, o)
		},
	}
	groups := o.flags()
	for _, group := range groups.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}

// flags returns the flags in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	cri := groups.FlagSet("CRI")
	cri.StringVar(&o.listen, "listen", "unix:///run/kubecri/kubecri.sock",
		"Socket to serve the kubelet on. It gets the owner and mode of the runtime's socket. A socket that another process serves is not taken over.")
	cri.StringVar(&o.runtimeEndpoint, "runtime-endpoint", "unix:///run/containerd/containerd.sock",
		"Socket of the container runtime. It need not exist yet.")
	cri.DurationVar(&o.drainTimeout, "drain-timeout", 10*time.Second,
		"How long CRI calls in flight may go on after SIGTERM.")
	cluster := groups.FlagSet("cluster")
	cluster.StringVar(&o.nodeName, "node-name", "",
		"Name of this node's Node object. (default the host's name in lower case, as the kubelet's)")
	cluster.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig of kubecri's own identity, system:kubecri:<node>. Empty means that of the pod it runs in.")
	slots := groups.FlagSet("slots")
	slots.DurationVar(&o.claimGrace, "claim-grace", 20*time.Second,
		"How long a claim of this node is left alone when no container uses the slot and none is known to have.")
	slots.DurationVar(&o.claimResync, "claim-resync", 30*time.Second,
		"How often claims are compared with the runtime's containers.")
	slots.DurationVar(&o.deviceTimeout, "device-timeout", 5*time.Second,
		"How long the creation of a container waits for its device to be discovered, after a start.")
	devices := groups.FlagSet("devices")
	devices.DurationVar(&o.advertiseInterval, "advertise-interval", time.Minute,
		"How often the node's resources are checked, besides on each change.")
	devices.StringVar(&o.stateDir, "state-dir", "/var/lib/kubecri",
		"Folder for kubecri's own files, made if absent.")
	devices.StringVar(&o.debugEchoFile, "debug-echo-availability-file", "",
		"The devices of the handler debugEcho vanish while this file contains OFFLINE. (default debug-echo-availability.txt in --state-dir)")
	operations := groups.FlagSet("operations")
	operations.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:10349",
		"Where to serve /metrics, /healthz and /readyz, over HTTP and to whoever can connect. \"0\" serves nothing.")
	logsapi.AddFlags(o.logging, groups.FlagSet("logging"))
	verflag.AddFlags(groups.FlagSet("global"))
	globalflag.AddGlobalFlags(groups.FlagSet("global"), "kubecri", logs.SkipLoggingConfigurationFlags())
	return groups
}

// complete fills defaults and checks everything that can be checked before
// anything is started.
func (o *options) complete() error {
	var errs []error
	bad := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	listen, err := proxy.SocketPath(o.listen)
	bad("listen", err)
	runtime, err := proxy.SocketPath(o.runtimeEndpoint)
	bad("runtime-endpoint", err)
	if listen == runtime && listen != "" {
		errs = append(errs, fmt.Errorf("--listen and --runtime-endpoint are both %s: kubecri stands between the two", listen))
	}
	if o.nodeName == "" {
		host, err := os.Hostname()
		bad("node-name", err)
		o.nodeName = strings.ToLower(strings.TrimSpace(host)) // as the kubelet does
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.nodeName) {
		bad("node-name", fmt.Errorf("%q: %s", o.nodeName, problem))
	}
	if o.kubeconfig != "" {
		_, err := os.Stat(o.kubeconfig)
		bad("kubeconfig", err)
	}
	for flag, d := range map[string]time.Duration{"claim-grace": o.claimGrace, "drain-timeout": o.drainTimeout} {
		if d < 0 {
			bad(flag, fmt.Errorf("%s is negative", d))
		}
	}
	for flag, d := range map[string]time.Duration{
		"claim-resync": o.claimResync, "device-timeout": o.deviceTimeout, "advertise-interval": o.advertiseInterval} {
		if d < 100*time.Millisecond {
			bad(flag, fmt.Errorf("%s: want at least 100ms", d))
		}
	}
	bad("metrics-bind-address", checkBindAddress(o.metricsAddress))
	if !filepath.IsAbs(o.stateDir) {
		bad("state-dir", fmt.Errorf("%q is not an absolute path", o.stateDir))
	}
	if o.debugEchoFile == "" {
		o.debugEchoFile = filepath.Join(o.stateDir, "debug-echo-availability.txt")
	}
	return errors.Join(errs...)
}
