// Command kubecri is Kubeslot's part of a node. It stands between the kubelet and
// its container runtime and gives containers the devices that their pods were
// assigned; it discovers devices and says what the node has.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
)

func main() {
	code := 0
	if failed := cli.Run(newCommand(os.Args[1:], &code)); failed != 0 {
		code = failed
	}
	os.Exit(code)
}
