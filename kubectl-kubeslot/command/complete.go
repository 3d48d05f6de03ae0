package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// completeTime is how long a key press may take.
const completeTime = 3 * time.Second

// complete completes arguments with the names of the resources, of which nothing else is read. Errors complete to
// nothing, as in kubectl.
func (o *options) complete(resources ...schema.GroupVersionResource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		names := slices.DeleteFunc(o.names(cmd.Context(), resources...),
			func(name string) bool { return slices.Contains(args, name) })
		return begins(names, begin), cobra.ShellCompDirectiveNoFileComp
	}
}

// names are those of the resources' objects, in the namespace if they are of any; none after an error.
func (o *options) names(ctx context.Context, resources ...schema.GroupVersionResource) []string {
	ctx, cancel := context.WithTimeout(ctx, o.completeTime)
	defer cancel()
	namespace, err := o.namespace()
	if err != nil {
		return nil
	}
	from, err := o.source()
	if err != nil {
		return nil
	}
	var all []string
	for _, resource := range resources {
		names, err := from.Names(ctx, resource, namespace)
		if err != nil {
			return nil
		}
		all = append(all, names...)
	}
	return all
}

// meant proposes a name of the resource, as spelling.DidYouMean does.
func (o *options) meant(ctx context.Context, name string, resource schema.GroupVersionResource) string {
	return spelling.DidYouMean(name, o.names(ctx, resource))
}

// noNamespace is an error when the namespace does not exist; nil also when that cannot be known.
func (o *options) noNamespace(ctx context.Context) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	from, err := o.source()
	if err != nil {
		return err
	}
	if !from.NoNamespace(ctx, namespace) {
		return nil
	}
	return fmt.Errorf("there is no namespace %s%s", namespace, o.meant(ctx, namespace, source.Namespaces))
}

// namer finds the names that an argument may be, in the namespace; of all for "".
type namer func(v *view.View, namespace string) []string

func configurationNames(v *view.View, namespace string) []string {
	var names []string
	for _, c := range v.Configurations() {
		if namespace == "" || c.Namespace == "" || c.Namespace == namespace { // "" of one that was deleted
			names = append(names, c.Name)
		}
	}
	return names
}

func deviceNames(v *view.View, namespace string) []string {
	names := configurationNames(v, namespace)
	for _, i := range v.Instances() {
		if namespace == "" || i.Namespace == namespace {
			names = append(names, i.Name)
		}
	}
	return names
}

// slotNames are deviceNames, and what has slots still though its Configuration is gone.
func slotNames(v *view.View, namespace string) []string {
	names := deviceNames(v, namespace)
	for _, s := range v.Taken() {
		if namespace == "" || s.InstanceNamespace == namespace {
			names = append(names, s.Configuration, s.Instance)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// withIDs adds the handlers' ids of devices. They are not completed: many are paths, or have
// characters that a shell reads.
func withIDs(names namer) namer {
	return func(v *view.View, namespace string) []string {
		all := names(v, namespace)
		for _, i := range v.Instances() {
			if (namespace == "" || i.Namespace == namespace) && i.Device != "" {
				all = append(all, i.Device)
			}
		}
		return all
	}
}

// completeOutput completes the value of --output.
func completeOutput(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return begins(formats(), begin), cobra.ShellCompDirectiveNoFileComp
}

// completeAliases completes other names of commands once one is begun: cobra proposes the first names alone.
func completeAliases(root *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 && begin != "" {
		for _, cmd := range root.Commands() {
			names = append(names, cmd.Aliases...)
		}
	}
	return begins(names, begin), cobra.ShellCompDirectiveNoFileComp
}

// completeFlags completes the values of flags that all commands have.
func (o *options) completeFlags(root *cobra.Command) {
	cobra.CheckErr(root.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return begins(o.names(cmd.Context(), source.Namespaces), begin), cobra.ShellCompDirectiveNoFileComp
	}))
	cobra.CheckErr(root.RegisterFlagCompletionFunc("context", func(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		config, err := o.kube.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return begins(slices.Sorted(maps.Keys(config.Contexts)), begin), cobra.ShellCompDirectiveNoFileComp
	}))
}

func begins(names []string, begin string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begin) })
}
