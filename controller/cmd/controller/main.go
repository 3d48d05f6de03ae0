// Command controller is Kubeslot's part of the cluster: it writes Instances and the
// status of Configurations, runs brokers and their Services, and deletes the SlotClaims
// of nodes and pods that are gone.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
)

func main() { os.Exit(cli.Run(newCommand())) }
