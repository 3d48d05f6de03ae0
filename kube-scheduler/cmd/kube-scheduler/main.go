// Command kube-scheduler is a drop-in replacement for the upstream scheduler:
// same arguments, with Kubeslot's plugins added and enabled by default.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kubeslot/kubeslot/footprint"
	"github.com/kubeslot/kubeslot/kube-scheduler/configurationresources"
	"github.com/kubeslot/kubeslot/kube-scheduler/defaults"
	"github.com/kubeslot/kubeslot/kube-scheduler/deviceplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
)

func main() {
	defaults.Install()
	code := 0
	var plugins deviceplugins.Options
	cmd := app.NewSchedulerCommand(
		app.WithPlugin(configurationresources.Name, configurationresources.NewFactory()),
		app.WithPlugin(deviceplugins.Name, deviceplugins.NewFactory(&plugins)),
	)
	plugins.AddFlags(cmd)
	cmd.AddCommand(load.NewPluginCommand(load.Schedulers, &code))
	go footprint.AfterStart(context.Background())
	if failed := cli.Run(cmd); failed != 0 {
		code = failed
	}
	os.Exit(code)
}
