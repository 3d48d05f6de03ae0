// Command kubeslot-plugin-test is for authors of plugins that are processes of their own. It takes
// the host's part on a plugin's socket and says which rules of the protocol its server does not
// keep. It needs no cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/kubeslot/kubeslot/plugins/conformance"
)

const usage = `usage: kubeslot-plugin-test SOCKET

Checks a plugin that serves one of its halves on the unix socket, as kubecri and the scheduler rely
on it: registration, repeated and concurrent calls, bad input, deadlines, connections that end. Start
the plugin with a folder of your own, and then:

    kubeslot-plugin-test /tmp/plugins/widget.sock

Do not run it on a plugin that a cluster uses: it sends nodes that do not exist. It prints a line for
each check: ok, FAIL with what was expected and what came, or skipped with the reason. It exits with 0
if no check failed, with 1 if one did, and with 2 when the command line is wrong.
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if !conformance.Run(ctx, flag.Arg(0), print) {
		os.Exit(1)
	}
}

func print(r conformance.Result) {
	switch {
	case errors.As(r.Err, new(conformance.Skipped)):
		fmt.Printf("skipped  %s: %v\n", r.Name, r.Err)
	case r.Err != nil:
		fmt.Printf("FAIL     %s: %v\n         want: %s\n         why:  %s\n", r.Name, r.Err, r.Want, r.Why)
	default:
		fmt.Printf("ok       %s\n", r.Name)
	}
}
