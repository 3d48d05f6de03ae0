// Command mdns-discovery is the mdns discovery handler as a program of its own, for
// kubecri's agent or Akri's. It needs the host's network. See docs/discovery/mdns.md.
package main

import (
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/mdns"
	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/discovery/standalone"
)

func main() {
	standalone.Run(func(flags *pflag.FlagSet) discovery.Handler {
		handler := &mdns.Handler{}
		flags.StringSliceVar(&handler.Interfaces, "interfaces", netif.Default,
			`network interfaces to look on: globs of names; "!" before one leaves interfaces out, and the last that matches counts`)
		return handler
	})
}
