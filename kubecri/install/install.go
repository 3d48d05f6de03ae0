// Package install has the commands for people who put kubecri on a host and take it away:
// kubecri install, uninstall and cleanup. What runs on each node is elsewhere.
package install

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	units "github.com/kubeslot/kubeslot/deploy/systemd"
	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/install/check"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/install/hostinstall"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/version"
)

const installDescription = `install puts kubecri on this host: its unit, the unit's environment file, this
program at ` + hostinstall.Program + `, and, in mode proxy, kubecri's socket for the
runtime's wherever the kubelet is told that: --container-runtime-endpoint in
kubeadm-flags.env, other environment files and drop-ins, containerRuntimeEndpoint
in its --config, in --config-dir, and in kubeadm's instance-config.yaml.

It asks the runtime and the API server first whether kubecri could work, prints
what it will change, and asks. What the files said before is kept in
` + hostinstall.RecordFile + `. When the kubelet does not come back healthy
within --timeout, all is undone. Run it again for a new version, or after an
interrupted one: flags that are not given are then as they were.

The kubelet restarts, and running pods go on.`

// installOptions are the command line of install, and of uninstall in part.
type installOptions struct {
	want        hostinstall.Want
	args        string
	kubeletUnit string
	leave       bool // the program that is there
	yes, dryRun bool
	timeout     time.Duration
	nriSocket   string
	given       func(flag string) bool // on the command line
}

func (o *installOptions) addCommon(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeletUnit, "kubelet-unit", "kubelet.service", "systemd unit of the kubelet.")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Do not ask.")
	flags.BoolVar(&o.dryRun, "dry-run", false, "Print what would be changed, and end.")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "How long the kubelet, and kubecri, may take to be healthy after a restart.")
	flags.StringVar(&o.want.RuntimeEndpoint, "runtime-endpoint", "", "Socket of the container runtime. (default the one that the kubelet uses, or used before kubecri)")
}

// Commands are `kubecri install`, `uninstall` and `cleanup`. One that ends without an error
// may still set the exit code.
func Commands(code *int) []*cobra.Command {
	return []*cobra.Command{newInstallCommand(code), newUninstallCommand(code), newCleanupCommand(code)}
}

// newInstallCommand makes `kubecri install`.
func newInstallCommand(code *int) *cobra.Command {
	o := &installOptions{}
	cmd := command(code, "install", "Put kubecri on this host, between kubelet and runtime", installDescription,
		o.install)
	o.addInstall(cmd.Flags())
	return cmd
}

func (o *installOptions) addInstall(flags *pflag.FlagSet) {
	o.given = flags.Changed
	o.addCommon(flags)
	flags.StringVar(&o.want.Mode, "mode", hostinstall.Proxy, "How kubecri gets between kubelet and runtime: "+
		"proxy, where the kubelet uses kubecri's socket; in other modes, such as nri, the kubelet stays as it is.")
	flags.StringVar(&o.want.Listen, "listen", "unix:///run/kubecri/kubecri.sock", "Socket where the kubelet is to find kubecri.")
	flags.StringVar(&o.want.NodeName, "node-name", "", "Name of this node's Node object. (default the kubelet's --hostname-override or the host's name)")
	flags.StringVar(&o.want.Kubeconfig, "kubeconfig", "", "Kubeconfig of kubecri's identity. (default the one of a former install, "+defaultKubeconfig+", or the kubelet's own, which needs deploy/kubelet-identity)")
	flags.StringVar(&o.want.StateDir, "state-dir", "/var/lib/kubecri", "Directory for kubecri's own files.")
	flags.StringVar(&o.want.CDIDir, "cdi-dir", "/var/run/cdi", "Directory for a CDI spec of each device.")
	flags.StringVar(&o.args, "args", "", "Further arguments of kubecri, split at blanks. (default those of a former install)")
	flags.StringVar(&o.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "With --mode=nri: the runtime's NRI socket, to see whether it takes plugins.")
	flags.BoolVar(&o.leave, "leave-program", false, "Leave the program at "+hostinstall.Program+" as it is, such as a package's.")
}

// defaultKubeconfig is where docs/install.md has it.
const defaultKubeconfig = "/etc/kubeslot/kubecri.kubeconfig"

// command makes one whose context ends with the first SIGINT, SIGTERM or SIGHUP. An error
// is said to a person, not to a log, and sets code.
func command(code *int, name, short, long string, run func(context.Context, *cobra.Command) error) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: long, Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A session that is lost, or a reader of what is printed, ends nothing halfway.
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			defer stop()
			if err := run(ctx, cmd); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "Error:", err)
				*code = 1
			}
			return nil
		}}
}

func (o *installOptions) install(ctx context.Context, cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	host, err := o.look(ctx)
	if err != nil {
		return err
	}
	if err := host.Check(); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err := o.complete(host); err != nil {
		return err
	}
	plan, err := hostinstall.Install(host, o.want)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	api, err := connection.NewClients(o.want.Kubeconfig)
	if err != nil {
		return err
	}
	node, err := api.Kube.CoreV1().Nodes().Get(ctx, o.want.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("nothing was changed: get node %q with --kubeconfig=%s: %w. Is that the node's name (--node-name)?", o.want.NodeName, o.want.Kubeconfig, err)
	}
	if host.Other, err = otherKubecri(ctx, api.Kube, o.want.NodeName); err != nil {
		return err
	}
	if err := host.Check(); err != nil { // there may be another one
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err := o.preflight(ctx, out, api, plan); err != nil {
		return err
	}
	if plan.Empty() {
		fmt.Fprintf(out, "kubecri %s is installed already, and the kubelet uses it: nothing to do.\n", version.Version())
		return nil
	}
	hostinstall.Print(out, plan)
	fmt.Fprintf(out, "Running pods go on. If the kubelet is not healthy within %s, all of this is undone.\n", o.timeout)
	if ok, err := o.proceed(cmd); err != nil || !ok {
		return err
	}
	health := hostinstall.Health{Node: o.want.NodeName}
	if v1alpha1.Ready(node) {
		health.Kube = api.Kube
	}
	left := leftByKubecri(plan.Environment, plan.Listen)
	if err := noteState(&left); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	former := cleanup.Claimed(ctx, api.Client, o.want.NodeName) != ""
	if err := o.apply(ctx, out, plan, health); err != nil {
		return errors.Join(err, o.tidy(ctx, out, host, left, former, api))
	}
	fmt.Fprintf(out, "kubecri %s is installed. `kubecri check` tells how it is; `kubecri uninstall` takes it away again.\n", version.Version())
	return nil
}

// look reads the host; it wants root, which alone may read all of it.
func (o *installOptions) look(ctx context.Context) (hostinstall.Host, error) {
	if err := checkTimeout(o.timeout); err != nil {
		return hostinstall.Host{}, err
	}
	if os.Geteuid() != 0 {
		return hostinstall.Host{}, errors.New("nothing was changed: this needs root")
	}
	return hostinstall.Look(ctx, o.kubeletUnit)
}

// checkTimeout refuses what would be over before anything is done.
func checkTimeout(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("nothing was changed: --timeout %s: want more than 0s", timeout)
	}
	return nil
}

// complete fills in what was not said, from a former install and from the kubelet.
func (o *installOptions) complete(host hostinstall.Host) error {
	o.asBefore(host)
	args := host.Kubelet.Args
	var err error
	if o.want.NodeName == "" {
		if o.want.NodeName, err = nodeutil.GetHostname(args.HostnameOverride); err != nil {
			return err
		}
	}
	if _, err := os.Stat(defaultKubeconfig); o.want.Kubeconfig == "" && err == nil {
		o.want.Kubeconfig = defaultKubeconfig
	}
	o.want.Kubeconfig = cmp.Or(o.want.Kubeconfig, args.Kubeconfig)
	if o.want.Kubeconfig == "" {
		return errors.New("nothing was changed: the kubelet has no --kubeconfig that kubecri could use: name one with --kubeconfig")
	}
	if o.want.Kubeconfig, err = filepath.Abs(o.want.Kubeconfig); err != nil {
		return err
	}
	o.want.Unit = units.Kubecri
	if o.leave {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	o.want.Program, err = hostinstall.HashFile(program)
	return err
}

// asBefore takes from a former install what was not said: another mode, or another socket, would restart the
// kubelet, and another directory would have kubecri forget what it has saved.
func (o *installOptions) asBefore(host hostinstall.Host) {
	former := host.Environment()
	for flag, is := range map[string]struct {
		variable string
		value    *string
	}{
		"node-name": {"NODE_NAME", &o.want.NodeName}, "kubeconfig": {"KUBECONFIG", &o.want.Kubeconfig},
		"listen": {"LISTEN", &o.want.Listen}, "state-dir": {"STATE_DIR", &o.want.StateDir},
		"cdi-dir": {"CDI_DIR", &o.want.CDIDir},
	} {
		if value, said := former[is.variable]; said && (value != "" || flag == "cdi-dir") && !o.given(flag) {
			*is.value = value
		}
	}
	args := former["KUBECRI_ARGS"]
	if o.given("args") {
		args, o.want.Args = o.args, &o.args
	}
	if !o.given("nri-socket") {
		o.nriSocket = argument(strings.Fields(args), "nri-socket", o.nriSocket)
	}
	if !o.given("mode") {
		if _, there := host.Files[hostinstall.EnvFile]; !there && host.Record != nil { // somebody has lost it
			o.want.Mode = host.Record.Mode
		}
		o.want.Mode = argument(strings.Fields(former["KUBECRI_ARGS"]), "mode", o.want.Mode)
	}
}

// otherKubecri looks for a kubecri in a pod of the node, such as the chart's.
func otherKubecri(ctx context.Context, kube kubernetes.Interface, node string) (string, error) {
	pods, err := podsOf(ctx, kube, node)
	if err != nil {
		return "", fmt.Errorf("nothing was changed: list the pods of node %s: %w", node, err)
	}
	for _, p := range pods {
		if p.Labels["app.kubernetes.io/name"] == "kubecri" && p.DeletionTimestamp == nil {
			return fmt.Sprintf("kubecri runs on this node in pod %s/%s already", p.Namespace, p.Name), nil
		}
	}
	return "", nil
}

func podsOf(ctx context.Context, kube kubernetes.Interface, node string) ([]corev1.Pod, error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	list, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// preflight asks what kubecri check asks, before anything is changed.
func (o *installOptions) preflight(
	ctx context.Context, out io.Writer, api *connection.Clients, plan hostinstall.Plan,
) error {
	runtime, err := proxy.Dial(plan.RuntimeEndpoint)
	if err != nil {
		return err
	}
	defer runtime.Close()
	config := check.Config{
		Node: o.want.NodeName, RuntimeEndpoint: plan.RuntimeEndpoint, Runtime: runtimeapi.NewRuntimeServiceClient(runtime),
		Server: api.Server, Kube: api.Kube, Client: api.Client, Devices: check.DefaultDevices,
	}
	if o.want.Mode == hostinstall.NRI {
		config.NRI = o.nriSocket
	}
	if !check.Run(ctx, out, config) {
		return errors.New("nothing was changed: kubecri could not work here, see the lines that begin with FAIL")
	}
	return nil
}

func (o *installOptions) apply(ctx context.Context, out io.Writer, plan hostinstall.Plan, health hostinstall.Health) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	a := hostinstall.Applier{Systemctl: hostinstall.RunSystemctl, Ready: health.Ready, Timeout: o.timeout, Executable: program, Out: out}
	return a.Apply(ctx, plan)
}

// noteState notes what is in the state directory before kubecri writes there: a former one's files, or others'.
func noteState(paths *cleanup.Paths) error {
	entries, err := os.ReadDir(paths.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	for _, entry := range entries {
		paths.StateBefore = append(paths.StateBefore, entry.Name())
	}
	return nil
}

// tidy removes what a kubecri wrote that ran for a moment, and was not there before. Where a former one, such as the
// chart's, had claimed slots, what the API server has of the node is that one's.
func (o *installOptions) tidy(
	ctx context.Context, out io.Writer, before hostinstall.Host, left cleanup.Paths, former bool,
	api *connection.Clients,
) error {
	if before.Record != nil || before.Files[hostinstall.UnitFile] != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout) // after Ctrl-C too
	defer cancel()
	removed, _, err := cleanup.Files(left)
	if errors.Is(err, cleanup.ErrRuns) { // it could not be undone
		return nil
	}
	printRemoved(out, removed)
	hostinstall.RemoveDirectory()
	if former {
		fmt.Fprintf(out, "What the API server has of node %s stays: a former kubecri has claimed slots there.\n",
			o.want.NodeName)
		return err
	}
	removed, failed := cleanup.Node(ctx, api.Kube, api.Client, o.want.NodeName)
	printRemoved(out, removed)
	return errors.Join(err, failed)
}

// tidyTimeout bounds what tidying up may take of the API server.
const tidyTimeout = 30 * time.Second

// proceed asks, unless it was told not to; false when nothing is to be done.
func (o *installOptions) proceed(cmd *cobra.Command) (bool, error) {
	switch {
	case o.dryRun:
		return false, nil
	case o.yes:
		return true, nil
	}
	return confirm(cmd.InOrStdin(), cmd.OutOrStdout())
}

// confirm asks on a terminal. Elsewhere there is nobody to answer.
func confirm(in io.Reader, out io.Writer) (bool, error) {
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return false, errors.New("nothing was changed: there is no terminal to ask on; say --yes")
		}
	}
	fmt.Fprint(out, "Proceed? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil { // nobody there, as with /dev/null
		return false, fmt.Errorf("nothing was changed: no answer (%w); say --yes", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	fmt.Fprintln(out, "Nothing was changed.")
	return false, nil
}
