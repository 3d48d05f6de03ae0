// Command brokers measures what brokers of many Instances cost, and how that grows: the controller as a
// process, against a real API server and etcd with deploy/ applied. Nodes and their
// DeviceSlices are objects; what a scheduler and kubelets would do with the pods is done
// by this command.
//
//   - bench.go: what is done, and measured
//   - objects.go: nodes, devices, the Configuration
//   - kubelets.go: binds pods, and has them run
//   - measure.go: writes, CPU and memory
//   - away.go: the controller is away while devices change
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// options are the command line.
type options struct {
	sizes      []int // Instances, the smallest first
	nodes      int
	idle       time.Duration // that is watched with nothing to do, and while a rollout is stopped
	rollouts   int           // at most so many Instances have their brokers replaced
	controller string        // its file; "" builds it from the tree
	arms       []arm
}

const clusterName = "bench-brokers"

func main() {
	var o options
	sizes := flag.String("instances", "1000",
		"Instances, each with its brokers: comma-separated numbers, each measured on a cluster of its own")
	flag.IntVar(&o.nodes, "nodes", 20, "nodes that the devices are on")
	flag.DurationVar(&o.idle, "idle", time.Minute,
		"how long the controller is watched with nothing to do, and while a rollout is stopped")
	flag.IntVar(&o.rollouts, "rollouts", 1000, "measure roll-outs up to so many Instances")
	flag.StringVar(&o.controller, "controller", "", "another controller to measure, such as one of another version")
	names := flag.String("arms", "local,shared", "which devices, comma-separated")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.Join(o.setArms(*names), o.setSizes(*sizes))
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

// setSizes reads numbers of Instances.
func (o *options) setSizes(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("-instances=%s: %q is no number of Instances", text, word)
		}
		o.sizes = append(o.sizes, n)
	}
	slices.Sort(o.sizes)
	return nil
}

func run(ctx context.Context, o *options) error {
	if o.nodes < 2 || o.idle < time.Second {
		return errors.New("-nodes wants at least 2, -idle at least 1s")
	}
	for _, n := range o.sizes {
		if n%(o.nodes*10) != 0 { // each tenth device of a node goes, see away
			return fmt.Errorf("-instances wants multiples of 10 times -nodes, and %d is none", n)
		}
	}
	for _, a := range o.arms {
		var results []result
		for _, n := range o.sizes {
			r, err := measure(ctx, o, a, n)
			if r.full != (memory{}) { // all brokers were made: what was measured until an error counts
				results = append(results, r)
			}
			if err != nil {
				err = fmt.Errorf("%s, %d Instances: %w", a.name, n, err)
				return errors.Join(err, write(os.Stdout, o, results))
			}
		}
		if err := write(os.Stdout, o, results); err != nil {
			return err
		}
	}
	return nil
}

// measure measures one arm and size on an API server of its own.
func measure(ctx context.Context, o *options, a arm, instances int) (r result, err error) {
	config := cluster.Config{Name: clusterName, APIOnly: true}
	if o.controller != "" {
		config.Binaries = map[string]string{cluster.Controller: o.controller}
	}
	c, err := cluster.Up(ctx, config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	b, err := newBench(c, o, a, instances)
	if err != nil {
		return r, err
	}
	return b.run(ctx)
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
