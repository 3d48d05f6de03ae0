package command

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// completeTime bounds what a key press may take.
const completeTime = 3 * time.Second

// namer finds the names that an argument may be, in the namespace; of all for "".
type namer func(v *view.View, namespace string) []string

// complete completes arguments from what the user may list. Errors complete to nothing,
// as in kubectl.
func (o *options) complete(names namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		v, namespace, err := o.completeView(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []string
		for _, name := range names(v, namespace) {
			if strings.HasPrefix(name, begin) && !slices.Contains(args, name) {
				found = append(found, name)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func (o *options) completeView(ctx context.Context) (*view.View, string, error) {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	namespace, err := o.namespace()
	if err != nil {
		return nil, "", err
	}
	from, err := o.source()
	if err != nil {
		return nil, "", err
	}
	objects, _, err := from.List(ctx)
	if err != nil {
		return nil, "", err
	}
	return view.New(objects), namespace, nil
}

func configurationNames(v *view.View, namespace string) []string {
	var names []string
	for _, c := range v.Configurations() {
		if namespace == "" || c.Namespace == namespace {
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
	for _, s := range v.Slots() {
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

func podNames(v *view.View, namespace string) []string {
	var names []string
	for _, p := range v.Pods() {
		if namespace == "" || p.Namespace == namespace {
			names = append(names, p.Name)
		}
	}
	return names
}

func nodeNames(v *view.View, _ string) []string { return v.NodeNames() }

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
		v, _, err := o.completeView(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespaces := map[string]bool{}
		for _, c := range v.Configurations() {
			namespaces[c.Namespace] = true
		}
		for _, p := range v.Pods() {
			namespaces[p.Namespace] = true
		}
		return begins(slices.Sorted(maps.Keys(namespaces)), begin), cobra.ShellCompDirectiveNoFileComp
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
