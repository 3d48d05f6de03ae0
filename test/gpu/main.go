package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/nvmllink"
)

// copied is how many bytes are copied to each GPU and back: more than any cache of a GPU has.
const copied = 128 << 20

func main() {
	if len(os.Args) == 3 && (os.Args[1] == isolateArgument || os.Args[1] == tryArgument) {
		child(os.Args[1:])
	}
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "test-gpu checks Kubeslot's NVIDIA GPU plugin on this machine. It has no arguments.")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	m := machine{
		lib:  nvml.New(),
		load: func() error { return nvmllink.Load(nvmllink.Library) },
		smi:  nvidiaSMI,
		cuda: libcuda,
		size: copied,
		cdi:  []string{"/etc/cdi", "/var/run/cdi"},
	}
	r := m.check(ctx)
	if ctx.Err() != nil {
		r.pass("all checks ran", "", "interrupted")
	}
	r.print(os.Stdout)
	if r.count(failed) > 0 {
		stop()
		os.Exit(1)
	}
}
