// Command debug-echo-discovery is the discovery handler debugEcho as a program of its
// own; with the environment of Akri's.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
	"github.com/kubeslot/kubeslot/discovery/standalone"
)

// sharedVariable is Akri's. Its handler does not start without.
const sharedVariable = "DEBUG_ECHO_INSTANCES_SHARED"

func main() {
	shared := true
	if value := os.Getenv(sharedVariable); value != "" {
		var err error
		if shared, err = strconv.ParseBool(value); err != nil {
			fmt.Fprintf(os.Stderr, "%s is %q: want true or false\n", sharedVariable, value)
			os.Exit(2)
		}
	}
	standalone.Run(func(flags *pflag.FlagSet) discovery.Handler {
		h := &debugecho.Handler{}
		flags.BoolVar(&h.Local, "local", !shared,
			"devices are their node's alone, unless discoveryDetails say otherwise (environment: "+sharedVariable+"=false)")
		flags.StringVar(&h.AvailabilityFile, "availability-file", debugecho.DefaultAvailabilityFile,
			"all devices vanish while this file contains OFFLINE")
		return h
	})
}
