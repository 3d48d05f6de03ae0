// The example plugin as a process of its own: either half, over gRPC; see package widget.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/plugins/server"
)

// lookInterval is how often the node is looked at. A node's state is sent when it has changed.
const lookInterval = 10 * time.Second

func main() {
	half := flag.String("half", "", "which half of the plugin to serve: device (on a node) or scheduler")
	folder := flag.String("socket-folder", "", "folder of the socket, which kubecri or the scheduler watches\n"+
		"(default /run/kubeslot/plugins/devices or /run/kubeslot/plugins/schedulers)")
	flag.Parse()
	var plugin server.Plugin
	switch {
	case *half == "device" && flag.NArg() == 0:
		plugin = server.Device(&widget.Device{}, lookInterval)
	case *half == "scheduler" && flag.NArg() == 0:
		plugin = server.Scheduler(widget.Scheduler{}, string(widget.Resource))
	default:
		fmt.Fprintln(os.Stderr, "want --half=device or --half=scheduler, and no arguments")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := plugin.Serve(ctx, *folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
