package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubeslot/kubeslot/kubecri/install/check"
	"github.com/kubeslot/kubeslot/kubecri/nri"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// Values of --mode.
const modeProxy, modeNRI, modeDevicePlugin = "proxy", "nri", "device-plugin"

// options are the command line.
type options struct {
	kubelet kubeletFlags

	mode string

	nriSocket, nriName, nriIndex string

	listen          string
	runtimeEndpoint string
	imageEndpoint   string // "": the runtime's
	drainTimeout    time.Duration

	nodeName   string
	kubeconfig string

	publicKeysFile string // "": assignments need no signature

	claimGrace    time.Duration
	claimResync   time.Duration
	deviceTimeout time.Duration
	// variableNamespaces are those whose pods may set device plugins' own variables.
	variableNamespaces []string

	devices        string
	devicesPolicy  load.Policy
	devicesTimeout time.Duration
	remote         remote.Options // device plugins that are processes of their own

	advertiseInterval time.Duration
	stateDir          string
	cdiDir            string
	metricsAddress    string
	tlsCertFile       string
	tlsKeyFile        string
	tracing           tracing.Config // no endpoint: none
	discovery         discoveryOptions
	devicePlugin      devicePluginOptions

	logging *logsapi.LoggingConfiguration
	args    []string               // those that the flags are of
	given   func(flag string) bool // on the command line
}

func newOptions() *options {
	return &options{devicesPolicy: load.Skip, logging: logsapi.NewLoggingConfiguration(),
		remote: remote.Options{Sockets: registration.DevicesDirectory, Timeout: remote.DefaultDeviceTimeout}}
}

// flags returns the flags in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	cri := groups.FlagSet("CRI")
	cri.StringVar(&o.mode, "mode", modeProxy,
		"How containers get their devices. proxy: the kubelet uses kubecri's socket in place of the runtime's. nri: kubecri is a plugin of the runtime, and the kubelet stays as it is (NRI fails open, see docs/nri.md). device-plugin: kubecri is a device plugin of the kubelet, under any scheduler, see docs/device-plugin-mode.md.")
	cri.StringVar(&o.listen, "listen", "unix:///run/kubecri/kubecri.sock",
		"Socket to serve the kubelet on. It gets the owner and mode of the runtime's socket. A socket that another process serves is not taken over.")
	cri.StringVar(&o.runtimeEndpoint, "runtime-endpoint", "unix:///run/containerd/containerd.sock",
		"Socket of the container runtime. It need not exist yet.")
	cri.StringVar(&o.imageEndpoint, "image-service-endpoint", "",
		"Socket of the image service, if it is another than the runtime's. It need not exist yet. The kubelet's flag of this name means the same. (default the imageServiceEndpoint of --config, else --runtime-endpoint)")
	cri.DurationVar(&o.drainTimeout, "drain-timeout", 10*time.Second,
		"How long CRI calls in flight may go on after SIGTERM.")
	plugin := groups.FlagSet("NRI")
	plugin.StringVar(&o.nriSocket, "nri-socket", api.DefaultSocketPath,
		"With --mode=nri: the runtime's NRI socket. It need not exist yet.")
	plugin.StringVar(&o.nriName, "nri-plugin-name", "kubecri",
		"With --mode=nri: the name to register by, which the runtime's default validator may require.")
	plugin.StringVar(&o.nriIndex, "nri-plugin-index", "50",
		"With --mode=nri: the place among the runtime's plugins, two digits.")
	cluster := groups.FlagSet("cluster")
	cluster.StringVar(&o.nodeName, "node-name", "",
		"Name of this node's Node object. (default --hostname-override or the host's name, in lower case as the kubelet's)")
	cluster.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig of kubecri's own identity, system:kubecri:<node>, or of the kubelet's, which needs deploy/kubelet-identity. Empty means that of the pod it runs in.")
	o.kubelet.addTo(groups.FlagSet("kubelet"))
	slots := groups.FlagSet("slots")
	slots.DurationVar(&o.claimGrace, "claim-grace", 20*time.Second,
		"How long a claim of this node is left alone when no container uses the slot and none is known to have.")
	slots.DurationVar(&o.claimResync, "claim-resync", 30*time.Second,
		"How often claims are compared with the runtime's containers.")
	slots.StringVar(&o.publicKeysFile, "assignment-public-keys-file", "",
		"Ed25519 public keys, in PEM, of the schedulers that sign assignments (kube-scheduler --assignment-signing-key-file). With it, containers get devices only by an assignment that one of them signed. Read again when a key is not in it. Empty takes assignments without a signature.")
	slots.DurationVar(&o.deviceTimeout, "device-timeout", 5*time.Second,
		"How long the creation of a container waits for its device to be discovered, after a start.")
	devices := groups.FlagSet("devices")
	devices.DurationVar(&o.advertiseInterval, "advertise-interval", time.Minute,
		"How often the node's resources are checked, besides on each change.")
	devices.StringVar(&o.stateDir, "state-dir", "/var/lib/kubecri",
		"Directory for kubecri's own files, made if absent.")
	devices.StringVar(&o.cdiDir, "cdi-dir", "/var/run/cdi",
		"Directory for a CDI spec of each device. Where the runtime has CDI on and reads it, containers get their devices by CDI name. Empty for neither.")
	o.discovery.addTo(groups.FlagSet("discovery"))
	o.devicePlugin.addTo(groups.FlagSet("kubelet's device plugins"))
	plugins := groups.FlagSet("device plugins")
	plugins.StringVar(&o.devices, "cridevices", check.DefaultDevices,
		"Directory of device plugins, loaded at start in the order of their names: its *.so files. The default one may be absent.")
	plugins.Var(&o.devicesPolicy, "cridevices-bad-plugins",
		"What to do about a file that cannot be loaded: skip it, and refuse the pods that need it, or refuse to start. kubecri plugin check says what is wrong with it.")
	plugins.DurationVar(&o.devicesTimeout, "cridevices-timeout", soplugins.DefaultTimeout,
		"How long a call of a device plugin may take. One that takes longer is left alone until the call returns.")
	plugins.StringSliceVar(&o.variableNamespaces, "device-variable-namespaces", []string{"kube-system"},
		"Namespaces whose pods may ask the runtime for devices past the scheduler, by a variable that belongs to a device plugin, such as NVIDIA_VISIBLE_DEVICES; * for all. Privileged containers may anyway; in all others the variable gives none, unless the plugin gives them devices.")
	o.remote.AddFlags(plugins)
	o.given = func(flag string) bool { return cri.Changed(flag) || plugins.Changed(flag) }
	operations := groups.FlagSet("operations")
	operations.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:10349",
		"Where to serve /metrics, /healthz and /readyz: on the loopback over HTTP and to whoever can connect, elsewhere over HTTPS, with /metrics for those alone whom the API server allows to get it. \"0\" serves nothing.")
	operations.StringVar(&o.tlsCertFile, "tls-cert-file", "",
		"Certificate with which to serve elsewhere than on the loopback, as PEM. It may be renewed in place. Without it kubecri makes one for itself.")
	operations.StringVar(&o.tlsKeyFile, "tls-private-key-file", "", "Private key of --tls-cert-file.")
	operations.StringVar(&o.tracing.Endpoint, "tracing-endpoint", "",
		"host:port of an OpenTelemetry collector that takes OTLP over gRPC, without TLS, for spans of what kubecri does. Empty for none.")
	operations.Int32Var(&o.tracing.SamplingRatePerMillion, "tracing-sampling-rate-per-million", 0,
		"How many of a million traces that begin in kubecri are recorded. Those that the kubelet began are recorded as it says.")
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
	switch o.mode {
	case modeProxy:
	case modeNRI:
		_, err := proxy.SocketPath(o.nriSocket)
		bad("nri-socket", err)
		bad("nri-plugin-name or -index", nri.CheckName(o.nriName, o.nriIndex))
	case modeDevicePlugin:
		o.devicePlugin.complete(bad)
	default:
		bad("mode", fmt.Errorf("%q: want %s, %s or %s", o.mode, modeProxy, modeNRI, modeDevicePlugin))
	}
	if !o.given("listen") || o.imageEndpoint == "" {
		endpoints, err := o.kubelet.Configuration("")
		bad("config", err)
		switch {
		case o.mode != modeProxy && !o.given("runtime-endpoint"): // the kubelet talks to the runtime itself
			o.runtimeEndpoint = cmp.Or(endpoints.Runtime, o.runtimeEndpoint)
		case o.mode == modeProxy && !o.given("listen"):
			o.listen = cmp.Or(endpoints.Runtime, o.listen)
		}
		o.imageEndpoint = cmp.Or(o.imageEndpoint, endpoints.Images)
	}
	listen, err := proxy.SocketPath(o.listen)
	bad("listen", err)
	runtime, err := proxy.SocketPath(o.runtimeEndpoint)
	bad("runtime-endpoint", err)
	if o.mode != modeProxy {
		o.imageEndpoint = "" // the kubelet goes there by itself
	}
	if o.imageEndpoint != "" {
		images, err := proxy.SocketPath(o.imageEndpoint)
		bad("image-service-endpoint", err)
		// A kubelet that looks for images where we listen means the runtime's.
		if images == listen || images == runtime {
			o.imageEndpoint = ""
		}
	}
	if o.mode == modeProxy && listen == runtime && listen != "" {
		errs = append(errs, fmt.Errorf("--listen and --runtime-endpoint are both %s: kubecri stands between the two, and the kubelet's containerRuntimeEndpoint is where kubecri listens", listen))
	}
	if o.nodeName == "" {
		name, err := nodeutil.GetHostname(o.kubelet.HostnameOverride)
		bad("node-name", err)
		o.nodeName = name
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
	for flag, d := range map[string]time.Duration{"claim-resync": o.claimResync, "device-timeout": o.deviceTimeout,
		"advertise-interval": o.advertiseInterval, "cridevices-timeout": o.devicesTimeout,
		"plugin-timeout": o.remote.Timeout} {
		if d < 100*time.Millisecond {
			bad(flag, fmt.Errorf("%s: want at least 100ms", d))
		}
	}
	if o.tracing.Node = o.nodeName; o.tracing.Endpoint != "" {
		bad("tracing-*", o.tracing.Validate())
	}
	if o.given("cridevices") {
		_, err := os.ReadDir(o.devices)
		bad("cridevices", err)
	}
	if o.remote.Sockets != "" {
		bad("plugin-sockets", absolute(o.remote.Sockets))
	}
	if o.remote.Timeout > o.devicesTimeout {
		bad("plugin-timeout", fmt.Errorf("%s is more than --cridevices-timeout, which is %s", o.remote.Timeout,
			o.devicesTimeout))
	}
	bad("metrics-bind-address", checkBindAddress(o.metricsAddress))
	if (o.tlsCertFile == "") != (o.tlsKeyFile == "") {
		bad("tls-cert-file", errors.New("it and --tls-private-key-file go together"))
	}
	bad("kubelet-device-plugin-dir", absolute(o.devicePlugin.directory))
	bad("state-dir", absolute(o.stateDir))
	if o.cdiDir != "" {
		bad("cdi-dir", absolute(o.cdiDir))
	}
	o.discovery.complete(o.stateDir, bad)
	return errors.Join(errs...)
}

// absolute is an error for any other path.
func absolute(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	return nil
}

// verifier is what takes only signed assignments, nil where no keys are given.
func (o *options) verifier() (*signing.Verifier, error) {
	if o.publicKeysFile == "" {
		return nil, nil
	}
	v, err := signing.NewVerifier(o.publicKeysFile)
	if err != nil {
		return nil, fmt.Errorf("--assignment-public-keys-file: %w", err)
	}
	return v, nil
}
