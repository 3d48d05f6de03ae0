package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// ErrFindings is returned by `doctor` when something is not as it should be. It has
// been printed.
var ErrFindings = errors.New("something is not as it should be")

// New returns the command.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{kube: genericclioptions.NewConfigFlags(true), streams: streams, now: time.Now}
	root := &cobra.Command{
		Use:   "kubectl-kubeslot",
		Short: "Who holds which device slot, and why a pod waits",
		Long: `kubectl kubeslot shows the devices that Kubeslot gives to pods: what is
discovered, who holds a slot, why a pod waits, what is not as it should be.
It only reads, with your own rights.`,
		Example: `  kubectl kubeslot list -A             # what there is of each Configuration
  kubectl kubeslot slots cameras       # who holds what
  kubectl kubeslot pod viewer          # what it has, or why it waits
  kubectl kubeslot doctor              # what is wrong; exit code 1 if anything is`,
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kubeslot"},
	}
	o.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVarP(&o.output, "output", "o", "", "one of: wide, "+strings.Join(formats(), ", "))
	root.PersistentFlags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the line of column names")
	root.AddCommand(o.list(), o.instances(), o.slots(), o.pod(), o.node(), o.doctor())
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	return root
}

// options are what the flags say.
type options struct {
	kube      *genericclioptions.ConfigFlags
	streams   genericiooptions.IOStreams
	now       func() time.Time
	output    string
	noHeaders bool
}

func (o *options) list() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"configurations"}, Short: "Configurations: their devices, slots, and pods that wait",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := o.read(cmd.Context(), false)
			if err != nil {
				return err
			}
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			var rows []view.Configuration
			for _, c := range v.Configurations() {
				if all || c.Namespace == namespace {
					rows = append(rows, c)
				}
			}
			return print(o, "Configuration", rows, configurationColumns, "There is no Configuration in namespace "+namespace+"; -A shows those of all namespaces.")
		},
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "show the Configurations of all namespaces")
	return cmd
}

func (o *options) instances() *cobra.Command {
	return &cobra.Command{
		Use: "instances [CONFIGURATION]", Short: "Instances: each device, who reaches it, its free slots",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context(), false)
			if err != nil {
				return err
			}
			var rows []view.Instance
			for _, i := range v.Instances() {
				if matches(args, i.Configuration) {
					rows = append(rows, i)
				}
			}
			return print(o, "Instance", rows, instanceColumns, "There is no Instance: `kubectl kubeslot list -A` says whether discovery has a problem.")
		},
	}
}

func (o *options) slots() *cobra.Command {
	var free, held bool
	cmd := &cobra.Command{
		Use: "slots [CONFIGURATION|INSTANCE]", Short: "Slots: who holds each",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context(), false)
			if err != nil {
				return err
			}
			var rows []view.Slot
			for _, s := range v.Slots() {
				if matches(args, s.Configuration, s.Instance) && (!free || s.State == view.Free) && (!held || s.State != view.Free) {
					rows = append(rows, s)
				}
			}
			return print(o, "Slot", rows, slotColumns(o.now()), "There is no such slot.")
		},
	}
	cmd.Flags().BoolVar(&free, "free", false, "only those that nobody has")
	cmd.Flags().BoolVar(&held, "held", false, "only those that somebody has")
	cmd.MarkFlagsMutuallyExclusive("free", "held")
	return cmd
}

func (o *options) pod() *cobra.Command {
	return &cobra.Command{
		Use: "pod POD", Short: "A pod: the devices that it has, or why it waits for them",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context(), false)
			if err != nil {
				return err
			}
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			pod, found := v.Pod(namespace, args[0])
			if !found {
				return fmt.Errorf("there is no pod %s in namespace %s that you can see", args[0], namespace)
			}
			return o.one("Pod", pod, func(w io.Writer) { describePod(w, &pod, o.now()) })
		},
	}
}

func (o *options) node() *cobra.Command {
	return &cobra.Command{
		Use: "node NODE", Short: "A node: the devices that it reaches, and the slots of its pods",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context(), false)
			if err != nil {
				return err
			}
			node, found := v.Node(args[0])
			if !found {
				return fmt.Errorf("there is no node %s that you can see", args[0])
			}
			return o.one("Node", node, func(w io.Writer) { describeNode(w, &node, o.now()) })
		},
	}
}

func (o *options) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "What is not as it should be in the cluster; exit code 1 if anything is",
		Long: `doctor compares pods, claims, Instances and what nodes report, and says what does
not fit: claims whose pod is gone, containers that run without a claim, slots
that are assigned twice, Configurations with problems, nodes without kubecri.
It needs the right to list all of them in the whole cluster.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := o.read(cmd.Context(), true)
			if err != nil {
				return err
			}
			findings := v.Examine(o.now())
			if err := print(o, "Finding", findings, findingColumns, "Everything is as it should be."); err != nil {
				return err
			}
			if len(findings) > 0 {
				return ErrFindings
			}
			return nil
		},
	}
}

func (o *options) namespace() (string, error) {
	namespace, _, err := o.kube.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// matches reports whether the argument, if there is one, is one of the names.
func matches(args []string, names ...string) bool {
	return len(args) == 0 || slices.Contains(names, args[0])
}

// Main runs the command with the arguments of the process, and returns its exit code.
func Main(ctx context.Context, streams genericiooptions.IOStreams) int {
	switch err := New(streams).ExecuteContext(ctx); {
	case err == nil:
		return 0
	case errors.Is(err, ErrFindings):
		return 1
	default:
		fmt.Fprintln(streams.ErrOut, "error:", err)
		return 2
	}
}
