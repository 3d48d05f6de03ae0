package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/install"
	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/version"
)

const description = `kubecri is Kubeslot's agent on a node. It discovers devices, reports them in the
node's DeviceSlices, and advertises them as the node's resources. When a container
is created whose pod was assigned device slots, it claims them (a SlotClaim object
each) and adds the devices' environment, mounts and device nodes; it releases them
when the container is gone. --mode says how it takes part in that:

  proxy          (the default) it listens as the kubelet's container runtime endpoint
                 and forwards every CRI call to the runtime. Start it before the
                 kubelet, whose containerRuntimeEndpoint is the value of --listen.
  nri            it is a plugin of the container runtime, as the Helm chart has it.
                 The kubelet stays as it is. See docs/nri.md.
  device-plugin  it is a device plugin of the kubelet, under any scheduler. See
                 docs/device-plugin-mode.md.

With --kubelet-args-compat, kubecri takes the kubelet's own arguments: flags of the
kubelet that are not listed here are ignored.

kubecri check tells whether it can work here, and what it would do for a pod;
kubecri plugin check, whether it would load a device plugin. kubecri install puts it
on this host and has the kubelet use it, and kubecri uninstall takes it away again.`

// newCommand makes the command for the arguments that follow the program's name.
// A command that ends without an error may still set the exit code.
func newCommand(args []string, code *int) *cobra.Command {
	o := newOptions()
	o.args = args
	var ignored kubeletargs.Ignored
	cmd := &cobra.Command{
		Use:          "kubecri",
		Short:        "Kubeslot's node agent and CRI shim",
		Long:         description,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version.PrintAndExitIfRequested(cmd.Flags())
			verflag.PrintAndExitIfRequested()
			if err := o.complete(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return err
			}
			logIgnored(klog.FromContext(cmd.Context()), ignored)
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			return run(ctx, o)
		},
	}
	groups := o.flags()
	addFlags(cmd, groups)
	cmd.CompletionOptions.DisableDefaultCmd = true
	meant := cmd
	for _, sub := range []*cobra.Command{newCheckCommand(code), newDiscoverCommand(),
		load.NewPluginCommand(load.Devices, code)} {
		cmd.AddCommand(sub)
		if len(args) > 0 && args[0] == sub.Name() {
			meant = sub
		}
	}
	for _, sub := range install.Commands(code) {
		sub.SetHelpFunc((&cobra.Command{}).HelpFunc()) // not those of this command
		sub.SetUsageFunc((&cobra.Command{}).UsageFunc())
		cmd.AddCommand(sub)
		if len(args) > 0 && args[0] == sub.Name() { // whose flags are not the kubelet's
			cmd.SetArgs(args)
			return cmd
		}
	}
	cmd.SetFlagErrorFunc(flagError)
	ignored = setArgs(cmd, meant, args)
	return cmd
}

// addFlags gives the command its flags, which --help shows in groups.
func addFlags(cmd *cobra.Command, groups cliflag.NamedFlagSets) {
	for _, group := range groups.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
}

// logIgnored logs what --kubelet-args-compat passed over, once logging is set up.
func logIgnored(logger klog.Logger, ignored kubeletargs.Ignored) {
	if len(ignored.Kubelet) > 0 {
		logger.V(2).Info("Flags of the kubelet that do not concern kubecri", "flags", ignored.Kubelet)
	}
	if len(ignored.Past) > 0 {
		logger.Info("Warning: ignored flags that kubelets no longer have; remove them", "flags", ignored.Past)
	}
	if len(ignored.Unknown) > 0 {
		logger.Info("Warning: ignored flags that neither kubecri nor the kubelet of its time has; are they misspelt?", "flags", ignored.Unknown)
	}
}
