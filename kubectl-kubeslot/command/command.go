package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/version"
)

// New returns the command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	return newRoot(newOptions(streams))
}

func newOptions(streams genericiooptions.IOStreams) *options {
	o := &options{kube: genericclioptions.NewConfigFlags(true), streams: streams, now: time.Now, patience: patience,
		completeTime: completeTime}
	o.terminal, o.width = o.isTerminal, o.terminalWidth
	return o
}

func newRoot(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-kubeslot",
		Short: "Who holds which device slot, and why a pod waits",
		Long: `kubectl kubeslot shows the devices that Kubeslot gives to pods: what is
discovered, who holds a slot, why a pod waits, and problems.
It acts with your own permissions, and only reads, but for release.`,
		Example: `  kubectl kubeslot list -A             # Configurations and their devices
  kubectl kubeslot slots cameras       # who holds what
  kubectl kubeslot slots --watch       # and what changes
  kubectl kubeslot pod viewer          # what it has, or why it waits
  kubectl kubeslot top                 # all of it, live
  kubectl kubeslot doctor              # problems; exit code 1 if there are any
  kubectl kubeslot release SLOT        # of a node that is off`,
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kubeslot"},
	}
	root.Version = fmt.Sprintf("Kubeslot %s (commit %s)", version.Version(), version.Commit())
	root.SetVersionTemplate("{{.Version}}\n")
	o.kube.AddFlags(root.PersistentFlags())
	root.SetUsageTemplate(helpTemplate)
	root.PersistentFlags().IntVarP(&o.verbosity, "v", "v", 0,
		"number for the log level verbosity: 6 shows each request, as kubectl's")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := o.setLog(); err != nil {
			return err
		}
		return o.setPrinter()
	}
	root.AddCommand(o.list(), o.instances(), o.slots(), o.pod(), o.node(), o.doctor(), o.release(), o.top(), o.ui(), o.version(), o.globalOptions())
	o.completeFlags(root)
	root.ValidArgsFunction = completeAliases
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
	verbosity int // of client-go's log
	output    string
	noHeaders bool
	printer   printers.ResourcePrinter // nil for a table
	// release asks on a terminal, and waits this long whether a node claims a slot again.
	terminal func() bool
	patience time.Duration
	// completeTime bounds what a key press may take.
	completeTime time.Duration
	// width is that of the terminal that is printed to; 0 when it is none.
	width func() int
	// connected is the source in tests, which are told by watched that it is watched.
	connected *source.Source
	watched   func()
}

// setLog shows client-go's log on standard error, as -v says.
func (o *options) setLog() error {
	if o.verbosity <= 0 {
		return nil
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(
		textlogger.Verbosity(o.verbosity), textlogger.Output(o.streams.ErrOut))))
	var level klog.Level // by which client-go decides whether it looks at requests at all
	return level.Set(strconv.Itoa(o.verbosity))
}

// selection says which rows to show, and how.
type selection struct {
	*options
	all      bool
	selector string
	sortBy   string
	watch    bool
	only     bool
	events   bool
}

// printFlags adds the flags of commands that print objects.
func (o *options) printFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "one of: "+strings.Join(formats(), ", "))
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the line of column names")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", completeOutput))
}

// selection adds the flags that commands of many rows have.
func (o *options) selection(cmd *cobra.Command, of string) *selection {
	o.printFlags(cmd)
	s := &selection{options: o}
	f := cmd.Flags()
	f.BoolVarP(&s.all, "all-namespaces", "A", false, "show those of all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "show those whose "+of+" has these labels (such as zone=yard,zone!=gate)")
	f.StringVar(&s.sortBy, "sort-by", "", "sort by the field of this JSONPath expression, "+
		"of those that -o yaml shows (such as .metadata.name); with --watch, the first rows")
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

// read makes a view of what the user may list, of pods of those that are wanted, and says on standard error what is
// missing in it.
func (o *options) read(ctx context.Context, wanted source.Wanted) (*view.View, error) {
	return o.readWith(ctx, wanted, false)
}

// readWith also reads the workloads whose pods are refused, if they are asked for. Pods are shown
// also where that fails.
func (o *options) readWith(ctx context.Context, wanted source.Wanted, refused bool) (*view.View, error) {
	from, err := o.source()
	if err != nil {
		return nil, err
	}
	objects, missing, err := from.List(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if refused {
		if objects.Refused, err = from.Refused(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(o.streams.ErrOut, "Workloads whose pods are refused are missing here: %s.\n", plain(err.Error()))
		}
	}
	o.tellMissing(missing)
	return view.New(objects), nil
}

func (o *options) tellMissing(missing []string) {
	if len(missing) > 0 {
		fmt.Fprintf(o.streams.ErrOut, "You may not list %s: what they say is missing here.\n", strings.Join(missing, ", "))
	}
}

// filter reports whether an object of the namespace and the labels is to be shown.
type filter func(namespace string, labels map[string]string) bool

// shows is the filter of the flags. It is an error if a flag that says which objects to show, or in which order,
// cannot be read.
func (s *selection) shows() (filter, error) {
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	if s.sortBy != "" {
		if _, err := field(s.sortBy); err != nil {
			return nil, fmt.Errorf("--sort-by: %w", err)
		}
	}
	namespace, err := s.namespace()
	if err != nil {
		return nil, err
	}
	return func(in string, of map[string]string) bool {
		return (s.all || in == namespace) && selector.Matches(labels.Set(of))
	}, nil
}

func (o *options) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "The version of this program, as --version", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(o.streams.Out, cmd.Root().Version) },
	}
}

// interrupted is the exit code after an interrupt, as a shell has it: whoever asks has no
// answer, so that it is neither success nor findings.
const interrupted = 128 + 2

// Main runs the command with the arguments of the process, and returns its exit code.
// Under the name kubectl_complete-kubeslot it completes a command line for kubectl.
func Main(ctx context.Context, streams genericiooptions.IOStreams) int {
	klog.SetLogger(logr.Discard()) // what client-go logs is of no use to a user, unless they ask for it with -v
	o := newOptions(streams)
	root := newRoot(o)
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl_complete-") {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	ran, err := root.ExecuteContextC(ctx)
	return o.exitCode(ctx, ran.Name(), err)
}

// exitCode says on standard error what went wrong, and returns the exit code: 1 after an
// error, as kubectl's, but of doctor, whose 1 says that it has found something, 2.
func (o *options) exitCode(ctx context.Context, command string, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return interrupted
	case errors.Is(err, ErrFindings):
		return 1
	}
	fmt.Fprintln(o.streams.ErrOut, "error:", plainLines(explained(err)))
	if command == "doctor" {
		return 2
	}
	return 1
}

// explained says what to do about an error of the connection, in kubectl's words.
func explained(err error) string {
	if connection, ok := errors.AsType[*url.Error](err); ok {
		if text, known := cmdutil.StandardErrorMessage(connection); known {
			return text
		}
	}
	return err.Error()
}
