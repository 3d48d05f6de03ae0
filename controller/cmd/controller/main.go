// Command controller is Kubeslot's part of the cluster: it writes Instances and the
// status of Configurations, runs brokers and their Services, and deletes the SlotClaims
// of nodes and pods that are gone.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"

	"github.com/kubeslot/kubeslot/serve/daemon"
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

func main() { os.Exit(cli.Run(newCommand())) }

func newCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{Use: "controller", Short: "Kubeslot's controller", Long: description}
	return daemon.Command(cmd, o.flags(), o.validate, func(ctx context.Context) error { return run(ctx, o) })
}
