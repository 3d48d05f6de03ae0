// Command discovery measures what discovery costs a node, and how soon its devices can
// be used: on a real cluster of one node, with kubelet, containerd and kubecri, first
// with the discovery handlers in kubecri, then with the same handlers as processes of
// their own.
//
//   - bench.go: what is done, and measured, with each
//   - plug.go: devices of the kernel that come and go while all others are there
//   - flood.go: devices that change each second, with -flood alone
//   - measure.go: the scheduler's slots, writes, CPU and memory
//   - table.go: the results
//
// `make bench-discovery` runs it; docs/performance.md has results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// options are the command line.
type options struct {
	devices        int // local ones, of one node
	configurations int // that they are of
	samples        int // devices that are plugged in and out
	idle           time.Duration
	flood          bool // instead of all that
}

func main() {
	var o options
	flag.IntVar(&o.devices, "devices", 10_000, "devices of the node")
	flag.IntVar(&o.configurations, "configurations", 50, "Configurations that these are of")
	flag.IntVar(&o.samples, "samples", 200, "how many times a device of the kernel is plugged in and out")
	flag.DurationVar(&o.idle, "idle", time.Minute, "how long kubecri is watched with nothing to do")
	flag.BoolVar(&o.flood, "flood", false, "only measure what devices that change each second make the node write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-discovery:", err)
		stop()
		os.Exit(1)
	}
}

const (
	clusterName = "bench-discovery"
	nodeName    = "node-a"
)

func run(ctx context.Context, o *options) (err error) {
	if o.configurations < 1 || o.samples < 1 || o.devices%o.configurations != 0 || o.idle < time.Second {
		return errors.New("-configurations and -samples want at least 1, -devices a multiple of -configurations, -idle at least 1s")
	}
	c, err := cluster.Up(ctx, cluster.Config{Name: clusterName, Nodes: []string{nodeName}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	programs := filepath.Join(c.BinDir(), "discovery")
	if err := build(ctx, c, programs); err != nil {
		return err
	}
	b, err := newBench(c, o)
	if err != nil {
		return err
	}
	if o.flood {
		return b.measureFlood(ctx, os.Stdout)
	}
	built, err := b.measure(ctx)
	if err != nil {
		return fmt.Errorf("handlers in kubecri: %w", err)
	}
	if err := b.standalone(ctx, programs); err != nil {
		return err
	}
	apart, err := b.measure(ctx)
	if err != nil {
		return fmt.Errorf("handlers as processes: %w", err)
	}
	return write(os.Stdout, o, []result{built, apart})
}

// handlers are the standalone programs, static as they are shipped.
var handlers = []string{"debug-echo-discovery", "udev-discovery"}

func build(ctx context.Context, c *cluster.Cluster, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}
	for _, h := range handlers {
		args = append(args, "./discovery/cmd/"+h)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = c.Config().RepoRoot, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, text)
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
