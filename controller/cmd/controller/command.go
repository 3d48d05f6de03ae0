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

	"github.com/kubeslot/kubeslot/version"
)

const description = `controller does what a Configuration promises beyond discovery: it writes each
device's Instance, from what the nodes report (DeviceSlices) and use (SlotClaims),
runs the brokers and Services that the Configuration asks for, writes its status,
and deletes the SlotClaims of nodes and pods that are gone. It serves a webhook that
refuses Configurations that could not work.

Scheduling and running containers do not need it: while no controller runs,
Instances, brokers and Services do not change, and slots of nodes that are gone stay
taken, and wrong Configurations are stored. Of several that run one is at work, the
leader; the others wait, their caches filled, and serve the webhook too.

Its identity is the user system:kubeslot-controller; its permissions are in
deploy/rbac/controller*.yaml.`

func newCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:          "controller",
		Short:        "Kubeslot's controller",
		Long:         description,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version.PrintAndExitIfRequested(cmd.Flags())
			verflag.PrintAndExitIfRequested()
			if err := o.validate(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			return run(ctx, o)
		},
	}
	groups := o.flags()
	for _, group := range groups.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}
