package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/spelling"
)

func (o *options) list() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [CONFIGURATION...]", Aliases: []string{"configurations", "configuration", "configs", "config",
			"akric"},
		SuggestFor: []string{"get"},
		Short:      "Configurations: their devices, slots, and pods that wait",
	}
	s := o.selection(cmd, "Configuration")
	cmd.ValidArgsFunction = o.complete(source.Configurations)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return show(cmd.Context(), s, listing[view.Configuration]{
			kind: "Configuration", wanted: source.Wanted{NoNodes: true}, columns: configurationColumns(s.all),
			none: s.none("Configuration", len(args) > 0),
			key:  func(c *view.Configuration) string { return c.Namespace + "/" + c.Name },
			rows: func(v *view.View, shows filter) []view.Configuration {
				return slices.DeleteFunc(shows.configurations(v), func(c view.Configuration) bool {
					return !matches(args, c.Name)
				})
			},
			missing: func(v *view.View) error { return s.missing("Configuration", args, v, configurationNames) },
		})
	}
	return cmd
}

func (f filter) configurations(v *view.View) []view.Configuration {
	return slices.DeleteFunc(v.Configurations(), func(c view.Configuration) bool {
		known := c.Namespace != "" // not of one that was deleted, and of which claims alone are left
		return known && !f(c.Namespace, c.Labels)
	})
}

func (o *options) instances() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "instances [CONFIGURATION|INSTANCE|DEVICE...]",
		Aliases: []string{"instance", "devices", "device", "akrii"},
		Short:   "Instances: each device, who reaches it, its free slots",
	}
	s := o.selection(cmd, "Instance")
	cmd.ValidArgsFunction = o.complete(source.Configurations, source.Instances)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return show(cmd.Context(), s, listing[view.Instance]{
			kind: "Instance", wanted: source.Wanted{NoNodes: true}, columns: instanceColumns(s.all),
			none: s.none("Instance", len(args) > 0) + " `kubectl kubeslot list` says whether discovery has a problem.",
			key:  func(i *view.Instance) string { return i.Namespace + "/" + i.Name },
			rows: func(v *view.View, shows filter) []view.Instance {
				return slices.DeleteFunc(v.Instances(), func(i view.Instance) bool {
					return !shows(i.Namespace, i.Labels) || !matches(args, i.Configuration, i.Name, i.Device)
				})
			},
			missing: func(v *view.View) error {
				return s.missing("Configuration, Instance or device", args, v, withIDs(deviceNames))
			},
		})
	}
	return cmd
}

func (o *options) slots() *cobra.Command {
	var free, held bool
	cmd := &cobra.Command{
		Use: "slots [CONFIGURATION|INSTANCE|DEVICE...]", Aliases: []string{"slot"}, SuggestFor: []string{"get"},
		Short: "Slots: who holds each",
	}
	s := o.selection(cmd, "Instance")
	cmd.Flags().BoolVar(&free, "free", false, "only those that nobody has")
	cmd.Flags().BoolVar(&held, "held", false, "only those that nodes have claimed for containers")
	cmd.MarkFlagsMutuallyExclusive("free", "held")
	cmd.ValidArgsFunction = o.complete(source.Configurations, source.Instances)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return show(cmd.Context(), s, listing[view.Slot]{
			kind: "Slot", columns: slotColumns(o.now, s.all), none: s.none("slot", len(args) > 0 || free || held),
			key: func(s *view.Slot) string { return s.Name },
			rows: func(v *view.View, shows filter) []view.Slot {
				return slices.DeleteFunc(v.Slots(), func(s view.Slot) bool {
					return !shows(s.InstanceNamespace, s.Labels) || !matches(args, s.Configuration, s.Instance, s.Device) ||
						free && s.State != view.Free || held && s.State != view.Held
				})
			},
			missing: func(v *view.View) error {
				return s.missing("Configuration, Instance or device", args, v, withIDs(slotNames))
			},
		})
	}
	return cmd
}

func (o *options) pod() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pod [POD...]", Aliases: []string{"pods", "po"}, SuggestFor: []string{"get"},
		Short: "A pod: the devices that it has, or why it waits for them; without a name, all such pods",
		Long: `pod says which slots a pod has or, of one that does not run, each condition that is
not met, who holds what it waits for, and what would let it run. Without a name
it lists the pods that ask for devices, with the same reasons, and workloads whose
pods are refused.`,
	}
	s := o.selection(cmd, "pod")
	cmd.ValidArgsFunction = o.complete(source.Pods)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return o.describePods(cmd.Context(), s, args)
		}
		namespace, err := o.namespace()
		if err != nil {
			return err
		}
		return show(cmd.Context(), s, listing[view.Pod]{
			kind: "Pod", wanted: source.Wanted{AllPods: s.all, Of: namespace}, refused: true,
			columns: podColumns(o.now, s.all), none: s.none("pod that asks for devices", false),
			key: func(p *view.Pod) string { return p.Namespace + "/" + p.Name },
			rows: func(v *view.View, shows filter) []view.Pod {
				return slices.DeleteFunc(v.Pods(), func(p view.Pod) bool { return !shows(p.Namespace, p.Labels) })
			},
			missing: func(*view.View) error { return nil },
		})
	}
	return cmd
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

// matches reports whether the arguments, if there are any, have one of the names.
func matches(args []string, names ...string) bool {
	return len(args) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(args, name) })
}

// missing says which of the names there are not, and what may have been meant; nil when
// there are all.
func (s *selection) missing(kind string, args []string, v *view.View, names namer) error {
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	where := " in namespace " + namespace
	if s.all {
		namespace, where = "", ""
	}
	there := names(v, namespace)
	var texts []string
	for _, name := range args {
		if slices.Contains(there, name) {
			continue
		}
		text := fmt.Sprintf("there is no %s %s%s that you can see", kind, name, where)
		if meant := spelling.DidYouMean(name, there); meant != "" {
			text += meant
		} else if !s.all && slices.Contains(names(v, ""), name) {
			text += "; there is one in another namespace: -A shows it"
		}
		texts = append(texts, text)
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "\nerror: "))
}
