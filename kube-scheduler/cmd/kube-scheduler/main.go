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
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/version"
)

func main() {
	defaults.Install()
	code := 0
	var (
		plugins  = deviceplugins.DefaultOptions()
		bindings binding.Options
	)
	slots := &configurationresources.Factory{Options: &bindings, ObjectionTime: restored.ObjectionTime}
	cmd := newCommand(slots.Lead, plugins.Away, func(sections *cliflag.NamedFlagSets) {
		plugins.AddFlags(sections.FlagSet("device scheduler plugins"))
		bindings.AddFlags(sections.FlagSet("device assignments"))
	},
		app.WithPlugin(configurationresources.Name, slots.New),
		app.WithPlugin(deviceplugins.Name, deviceplugins.NewFactory(&plugins, &bindings)),
	)
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { version.PrintAndExitIfRequested(cmd.Flags()) }
	cmd.AddCommand(load.NewPluginCommand(load.Schedulers, &code))
	if failed := cli.Run(cmd); failed != 0 {
		code = failed
	}
	os.Exit(code)
}
