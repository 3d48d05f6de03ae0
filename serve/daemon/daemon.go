// Package daemon has what the commands share that run until a signal ends them.
package daemon

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"

	"github.com/kubeslot/kubeslot/version"
)

// Command completes a command, which takes no arguments: with its own flags, those of logging and
// --version, in the groups that --help shows. It runs until a signal ends the context; a second
// signal ends the process at once.
func Command(cmd *cobra.Command, flags cliflag.NamedFlagSets, validate func() error,
	run func(context.Context) error) *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	logsapi.AddFlags(logging, flags.FlagSet("logging"))
	verflag.AddFlags(flags.FlagSet("global"))
	globalflag.AddGlobalFlags(flags.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, group := range flags.FlagSets {
		cmd.Flags().AddFlagSet(group)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, flags, width)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.Args, cmd.SilenceUsage = cobra.NoArgs, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		version.PrintAndExitIfRequested(cmd.Flags())
		verflag.PrintAndExitIfRequested()
		if err := validate(); err != nil {
			return err
		}
		if err := logsapi.ValidateAndApply(logging, nil); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		context.AfterFunc(ctx, stop)
		return run(ctx)
	}
	return cmd
}
