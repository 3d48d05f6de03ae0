package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// ErrFindings is returned by `doctor` when there is a problem. It has
// been printed.
var ErrFindings = errors.New("there are problems")

func (o *options) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Problems in the cluster; exit code 1 if there are any",
		Long: `doctor compares pods, claims, Instances and what nodes report, and says what does
not fit: claims whose pod is gone, slots that wait for a node that is not Ready,
containers that run without their devices, slots that are assigned twice, assignments
that cannot be read, Configurations with problems, nodes without kubecri, versions
that are too old or too new, definitions, policies and permissions that are missing
or old, schedulers without Kubeslot's plugins, leftovers of what is gone.
It needs permission to read all of them in the whole cluster.`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := o.source()
			if err != nil {
				return err
			}
			objects, missing, err := from.List(cmd.Context(), source.Wanted{AllPods: true})
			if errors.Is(err, source.NoConfigurations) {
				return errors.Join(err, o.leftovers(cmd.Context(), from))
			}
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				return fmt.Errorf("doctor needs permission to list all of Kubeslot's objects, pods and nodes in the whole cluster: listing %s is forbidden", strings.Join(missing, ", "))
			}
			if objects.Cluster, err = from.Cluster(cmd.Context()); err != nil {
				return err
			}
			if objects.Refused, err = from.Refused(cmd.Context()); err != nil {
				return err
			}
			v := view.New(objects)
			findings := v.Examine(o.now())
			if err := printRows(o, "Finding", findings, findingColumns, "No problems found."); err != nil {
				return err
			}
			for _, note := range v.Notes() { // also beside other formats: standard output has the problems alone
				fmt.Fprintln(o.streams.ErrOut, o.broken("Note: "+plain(note)))
			}
			if len(findings) > 0 {
				return ErrFindings
			}
			return nil
		},
	}
	o.printFlags(cmd)
	cmd.Flags().BoolP("all-namespaces", "A", true, "doctor always looks at all namespaces")
	return cmd
}

// leftovers prints what nodes still have of a Kubeslot that was removed.
func (o *options) leftovers(ctx context.Context, from *source.Source) error {
	objects, err := from.Nodes(ctx)
	if err != nil {
		return err
	}
	if findings := view.New(objects).Examine(o.now()); len(findings) > 0 {
		return printRows(o, "Finding", findings, findingColumns, "")
	}
	return nil
}
