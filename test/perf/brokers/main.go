// Command brokers measures what brokers of many Instances cost: the controller as a
// process, against a real API server and etcd with deploy/ applied. Nodes and their
// DeviceSlices are objects; what a scheduler and kubelets would do with the pods is done
// by this command.
//
//   - bench.go: what is done, and measured
//   - objects.go: nodes, devices, the Configuration
//   - kubelets.go: binds pods, and has them run
//   - measure.go: writes, CPU and memory
//   - table.go: the results
//
// `make bench-brokers` runs it; docs/performance.md has results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// options are the command line.
type options struct {
	instances  int
	nodes      int
	idle       time.Duration // that is watched with nothing to do, and while a rollout is stopped
	controller string        // its file; "" builds it from the tree
	arms       []arm
}

const clusterName = "bench-brokers"

func main() {
	var o options
	flag.IntVar(&o.instances, "instances", 1000, "Instances, each with its brokers")
	flag.IntVar(&o.nodes, "nodes", 20, "nodes that the devices are on")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long the controller is watched with nothing to do, and while a rollout is stopped")
	flag.StringVar(&o.controller, "controller", "", "another controller to measure, such as one of another version")
	names := flag.String("arms", "local,shared", "which devices, comma-separated")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.setArms(*names)
	if err == nil {
		err = run(ctx, &o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-brokers:", err)
		stop()
		os.Exit(1)
	}
}

// arms are the kinds of devices that may be measured, each on a cluster of its own.
var arms = map[string]arm{
	"local":  {name: "local devices, one broker each", capacity: 1},
	"shared": {name: "shared devices, two brokers each", shared: true, capacity: 2},
}

func (o *options) setArms(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		a, ok := arms[name]
		if !ok {
			return fmt.Errorf("-arms=%s: there is no %q; want local or shared", names, name)
		}
		o.arms = append(o.arms, a)
	}
	return nil
}

func run(ctx context.Context, o *options) error {
	if o.nodes < 2 || o.instances%o.nodes != 0 || o.idle < time.Second {
		return errors.New("-nodes wants at least 2, -instances a multiple of -nodes, -idle at least 1s")
	}
	var results []result
	for _, a := range o.arms {
		r, err := measure(ctx, o, a)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		results = append(results, r)
	}
	return write(os.Stdout, o, results)
}

// measure measures one arm on an API server of its own.
func measure(ctx context.Context, o *options, a arm) (r result, err error) {
	config := cluster.Config{Name: clusterName, APIOnly: true}
	if o.controller != "" {
		config.Binaries = map[string]string{cluster.Controller: o.controller}
	}
	c, err := cluster.Up(ctx, config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	b, err := newBench(c, o, a)
	if err != nil {
		return r, err
	}
	return b.run(ctx)
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
