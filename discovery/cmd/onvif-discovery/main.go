// Command onvif-discovery is the discovery handler onvif as a program of its own; with
// the environment of Akri's.
package main

import (
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/discovery/onvif"
	"github.com/kubeslot/kubeslot/discovery/standalone"
)

func main() {
	standalone.Run(func(flags *pflag.FlagSet) discovery.Handler {
		h := &onvif.Handler{}
		flags.StringSliceVar(&h.Interfaces, "interfaces", netif.Default,
			`network interfaces to look for cameras on: globs of names; "!" before one leaves interfaces out, and the last that matches counts`)
		flags.DurationVar(&h.Interval, "interval", onvif.DefaultInterval, "time between probes")
		return h
	})
}
