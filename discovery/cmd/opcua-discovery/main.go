// Command opcua-discovery is the discovery handler opcua as a program of its own; with
// the environment of Akri's.
package main

import (
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/opcua"
	"github.com/kubeslot/kubeslot/discovery/standalone"
)

func main() {
	standalone.Run(func(flags *pflag.FlagSet) discovery.Handler {
		h := &opcua.Handler{}
		flags.DurationVar(&h.Interval, "interval", opcua.DefaultInterval, "time between two requests to each discovery URL")
		return h
	})
}
