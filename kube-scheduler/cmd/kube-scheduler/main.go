// Command kube-scheduler is a drop-in replacement for the upstream scheduler:
// same arguments, with Kubeslot's plugins added and enabled by default.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/configurationresources"
	"github.com/kubeslot/kubeslot/kube-scheduler/defaults"
	"github.com/kubeslot/kubeslot/kube-scheduler/deviceplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/version"
)

func main() {
	defaults.Install()
	code := 0
	var (
		plugins  deviceplugins.Options
		bindings binding.Options
	)
	slots := &configurationresources.Factory{Options: &bindings}
	cmd := newCommand(slots.Lead,
		app.WithPlugin(configurationresources.Name, slots.New),
		app.WithPlugin(deviceplugins.Name, deviceplugins.NewFactory(&plugins, &bindings)),
	)
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { version.PrintAndExitIfRequested(cmd.Flags()) }
	var sections cliflag.NamedFlagSets
	plugins.AddFlags(sections.FlagSet("device scheduler plugins"))
	bindings.AddFlags(sections.FlagSet("device assignments"))
	addFlags(cmd, sections)
	cmd.AddCommand(load.NewPluginCommand(load.Schedulers, &code))
	if failed := cli.Run(cmd); failed != 0 {
		code = failed
	}
	os.Exit(code)
}

// addFlags adds our flags to the upstream command, and sections about them to its help.
func addFlags(cmd *cobra.Command, sections cliflag.NamedFlagSets) {
	for _, fs := range sections.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	usage, help := cmd.UsageFunc(), cmd.HelpFunc()
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		err := usage(c)
		cliflag.PrintSections(c.OutOrStderr(), sections, 0)
		return err
	})
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		cliflag.PrintSections(c.OutOrStdout(), sections, 0)
	})
}
