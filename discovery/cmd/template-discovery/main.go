// Command template-discovery is the template of a discovery handler as a program of
// its own.
package main

import (
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/discovery/template"
)

func main() {
	standalone.Run(func(*pflag.FlagSet) discovery.Handler { return &template.Handler{} })
}
