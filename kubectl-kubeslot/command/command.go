package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/version"
)

// ErrFindings is returned by `doctor` when something is not as it should be. It has
// been printed.
var ErrFindings = errors.New("something is not as it should be")

// New returns the command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	return newRoot(&options{kube: genericclioptions.NewConfigFlags(true), streams: streams, now: time.Now})
}

func newRoot(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-kubeslot",
		Short: "Who holds which device slot, and why a pod waits",
		Long: `kubectl kubeslot shows the devices that Kubeslot gives to pods: what is
discovered, who holds a slot, why a pod waits, what is not as it should be.
It only reads, with your own rights.`,
		Example: `  kubectl kubeslot list -A             # what there is of each Configuration
  kubectl kubeslot slots cameras       # who holds what
  kubectl kubeslot slots --watch       # and what changes
  kubectl kubeslot pod viewer          # what it has, or why it waits
  kubectl kubeslot top                 # all of it, live
  kubectl kubeslot doctor              # what is wrong; exit code 1 if anything is`,
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kubeslot"},
	}
	root.Version = fmt.Sprintf("Kubeslot %s (commit %s)", version.Version(), version.Commit())
	root.SetVersionTemplate("{{.Version}}\n")
	o.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&o.output, "output", "o", "", "one of: wide, "+strings.Join(formats(), ", "))
	root.PersistentFlags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the line of column names")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return o.checkOutput() }
	root.AddCommand(o.list(), o.instances(), o.slots(), o.pod(), o.node(), o.doctor(), o.top(), o.ui())
	o.completeFlags(root)
	root.SetIn(o.streams.In)
	root.SetOut(o.streams.Out)
	root.SetErr(o.streams.ErrOut)
	return root
}

// options are what the flags say.
type options struct {
	kube      *genericclioptions.ConfigFlags
	streams   genericiooptions.IOStreams
	now       func() time.Time
	output    string
	noHeaders bool
	// connected is the source in tests, which are told by watched that it is watched.
	connected *source.Source
	watched   func()
}

// selection says which rows to show, and how.
type selection struct {
	*options
	all      bool
	selector string
	watch    bool
	only     bool
	events   bool
}

// selection adds the flags that commands of many rows have.
func (o *options) selection(cmd *cobra.Command, of string) *selection {
	s := &selection{options: o}
	f := cmd.Flags()
	f.BoolVarP(&s.all, "all-namespaces", "A", false, "show those of all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "show those whose "+of+" has these labels (such as zone=yard,zone!=gate)")
	f.BoolVarP(&s.watch, "watch", "w", false, "go on with rows that change")
	f.BoolVar(&s.only, "watch-only", false, "show only rows that change from now on")
	f.BoolVar(&s.events, "output-watch-events", false, "with --watch, say of each row whether it was ADDED, MODIFIED or DELETED")
	return s
}

// source is where objects are read from, with the user's rights.
func (o *options) source() (*source.Source, error) {
	if o.connected != nil {
		return o.connected, nil
	}
	config, err := o.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	return source.New(config, namespace)
}

func (o *options) namespace() (string, error) {
	namespace, _, err := o.kube.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// read makes a view of what the user may list, and says on standard error what is
// missing in it.
func (o *options) read(ctx context.Context) (*view.View, error) {
	from, err := o.source()
	if err != nil {
		return nil, err
	}
	objects, missing, err := from.List(ctx)
	if err != nil {
		return nil, err
	}
	o.tellMissing(missing)
	return view.New(objects), nil
}

func (o *options) tellMissing(missing []string) {
	if len(missing) > 0 {
		fmt.Fprintf(o.streams.ErrOut, "You may not list %s: what they say is missing here.\n", strings.Join(missing, ", "))
	}
}

// shows reports whether an object of the namespace and the labels is to be shown.
func (s *selection) shows() (func(namespace string, of map[string]string) bool, error) {
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	namespace, err := s.namespace()
	if err != nil {
		return nil, err
	}
	return func(in string, of map[string]string) bool {
		return (s.all || in == namespace) && selector.Matches(labels.Set(of))
	}, nil
}

// none is what to say when there is nothing to show; narrowed is whether there may be
// others of the kind than what was asked for.
func (s *selection) none(what string, narrowed bool) string {
	if narrowed || s.selector != "" {
		what = "such " + what
	}
	if s.all {
		return "There is no " + what + "."
	}
	namespace, _ := s.namespace()
	return fmt.Sprintf("There is no %s in namespace %s; -A shows those of all namespaces.", what, namespace)
}

func (o *options) list() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [CONFIGURATION...]", Aliases: []string{"configurations"}, Short: "Configurations: their devices, slots, and pods that wait",
	}
	s := o.selection(cmd, "Configuration")
	cmd.ValidArgsFunction = o.complete(configurationNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		shows, err := s.shows()
		if err != nil {
			return err
		}
		return show(cmd.Context(), s, listing[view.Configuration]{
			kind: "Configuration", columns: configurationColumns(s.all), none: s.none("Configuration", len(args) > 0),
			key: func(c *view.Configuration) string { return c.Namespace + "/" + c.Name },
			rows: func(v *view.View) []view.Configuration {
				return slices.DeleteFunc(v.Configurations(), func(c view.Configuration) bool {
					return !shows(c.Namespace, c.Labels) || !matches(args, c.Name)
				})
			},
		})
	}
	return cmd
}

func (o *options) instances() *cobra.Command {
	cmd := &cobra.Command{
		Use: "instances [CONFIGURATION|INSTANCE...]", Short: "Instances: each device, who reaches it, its free slots",
	}
	s := o.selection(cmd, "Instance")
	cmd.ValidArgsFunction = o.complete(deviceNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		shows, err := s.shows()
		if err != nil {
			return err
		}
		return show(cmd.Context(), s, listing[view.Instance]{
			kind: "Instance", columns: instanceColumns(s.all),
			none: s.none("Instance", len(args) > 0) + " `kubectl kubeslot list` says whether discovery has a problem.",
			key:  func(i *view.Instance) string { return i.Namespace + "/" + i.Name },
			rows: func(v *view.View) []view.Instance {
				return slices.DeleteFunc(v.Instances(), func(i view.Instance) bool {
					return !shows(i.Namespace, i.Labels) || !matches(args, i.Configuration, i.Name)
				})
			},
		})
	}
	return cmd
}

func (o *options) slots() *cobra.Command {
	var free, held bool
	cmd := &cobra.Command{
		Use: "slots [CONFIGURATION|INSTANCE...]", Short: "Slots: who holds each",
	}
	s := o.selection(cmd, "Instance")
	cmd.Flags().BoolVar(&free, "free", false, "only those that nobody has")
	cmd.Flags().BoolVar(&held, "held", false, "only those that somebody has")
	cmd.MarkFlagsMutuallyExclusive("free", "held")
	cmd.ValidArgsFunction = o.complete(deviceNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		shows, err := s.shows()
		if err != nil {
			return err
		}
		return show(cmd.Context(), s, listing[view.Slot]{
			kind: "Slot", columns: slotColumns(o.now, s.all), none: s.none("slot", len(args) > 0 || free || held),
			key: func(s *view.Slot) string { return s.Name },
			rows: func(v *view.View) []view.Slot {
				return slices.DeleteFunc(v.Slots(), func(s view.Slot) bool {
					return !shows(s.InstanceNamespace, s.Labels) || !matches(args, s.Configuration, s.Instance) ||
						free && s.State != view.Free || held && s.State == view.Free
				})
			},
		})
	}
	return cmd
}

func (o *options) pod() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pod [POD...]", Aliases: []string{"pods"}, Short: "A pod: the devices that it has, or why it waits for them; without a name, all such pods",
		Long: `pod says which slots a pod has or, of one that does not run, each condition that is
not met, who holds what it waits for, and what would let it run. Without a name
it lists the pods that ask for devices, with what the scheduler or the kubelet
said last.`,
	}
	s := o.selection(cmd, "pod")
	cmd.ValidArgsFunction = o.complete(podNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return o.describePods(cmd.Context(), s, args)
		}
		shows, err := s.shows()
		if err != nil {
			return err
		}
		return show(cmd.Context(), s, listing[view.Pod]{
			kind: "Pod", columns: podColumns(o.now, s.all), none: s.none("pod that asks for devices", false),
			key: func(p *view.Pod) string { return p.Namespace + "/" + p.Name },
			rows: func(v *view.View) []view.Pod {
				return slices.DeleteFunc(v.Pods(), func(p view.Pod) bool { return !shows(p.Namespace, p.Labels) })
			},
		})
	}
	return cmd
}

func (o *options) node() *cobra.Command {
	cmd := &cobra.Command{
		Use: "node NODE...", Aliases: []string{"nodes"}, Short: "A node: the devices that it reaches and advertises, and the slots of its pods",
		Args: cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = o.complete(nodeNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v, err := o.read(cmd.Context())
		if err != nil {
			return err
		}
		var nodes []view.Node
		for _, name := range args {
			node, found := v.Node(name)
			if !found {
				return fmt.Errorf("there is no node %s that you can see", name)
			}
			nodes = append(nodes, node)
		}
		return describe(o, "Node", nodes, func(w io.Writer, n *view.Node) { describeNode(w, n, o.now()) })
	}
	return cmd
}

func (o *options) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "What is not as it should be in the cluster; exit code 1 if anything is",
		Long: `doctor compares pods, claims, Instances and what nodes report, and says what does
not fit: claims whose pod is gone, containers that run without a claim, slots
that are assigned twice, assignments that cannot be read, Configurations with
problems, nodes without kubecri, versions that are too old, policies that are
missing, what is left over of what is gone.
It needs the right to list all of them in the whole cluster.`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := o.source()
			if err != nil {
				return err
			}
			objects, missing, err := from.List(cmd.Context())
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				return fmt.Errorf("doctor needs the right to list all of Kubeslot's objects, pods and nodes in the whole cluster: listing %s is forbidden", strings.Join(missing, ", "))
			}
			if objects.Cluster, err = from.Cluster(cmd.Context()); err != nil {
				return err
			}
			findings := view.New(objects).Examine(o.now())
			if err := printRows(o, "Finding", findings, findingColumns, "Everything is as it should be."); err != nil {
				return err
			}
			if len(findings) > 0 {
				return ErrFindings
			}
			return nil
		},
	}
}

// describePods describes the pods of the names in the namespace.
func (o *options) describePods(ctx context.Context, s *selection, names []string) error {
	if s.watch || s.only || s.all || s.selector != "" {
		return errors.New("--watch, --all-namespaces and --selector are for `pod` without a name; `kubectl kubeslot top` follows one")
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	from, err := o.source()
	if err != nil {
		return err
	}
	v, err := o.read(ctx)
	if err != nil {
		return err
	}
	var pods []view.Pod
	for _, name := range names {
		events, err := from.Events(ctx, namespace, name)
		if err != nil {
			return err
		}
		pod, found := v.Pod(namespace, name, events...)
		if !found {
			return fmt.Errorf("there is no pod %s in namespace %s that you can see%s", name, namespace, v.Gone(events))
		}
		pods = append(pods, pod)
	}
	return describe(o, "Pod", pods, func(w io.Writer, p *view.Pod) { describePod(w, p, o.now()) })
}

// matches reports whether the arguments, if there are any, have one of the names.
func matches(args []string, names ...string) bool {
	return len(args) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(args, name) })
}

// interrupted is the exit code after an interrupt, as a shell has it: whoever asks has no
// answer, so that it is neither success nor findings.
const interrupted = 128 + 2

// Main runs the command with the arguments of the process, and returns its exit code.
// Under the name kubectl_complete-kubeslot it completes a command line for kubectl.
func Main(ctx context.Context, streams genericiooptions.IOStreams) int {
	klog.LogToStderr(false) // what client-go logs is of no use to a user
	klog.SetOutput(io.Discard)
	root := New(streams)
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl_complete-") {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return interrupted
	case errors.Is(err, ErrFindings):
		return 1
	default:
		fmt.Fprintln(streams.ErrOut, "error:", err)
		return 2
	}
}
