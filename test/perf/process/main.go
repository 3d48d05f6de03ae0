// Command process measures schedulers as processes, apart from the API server: the
// stock kube-scheduler and ours, each beside an API server and etcd of its own that
// hold the same nodes and pods. The plain arm's pods ask for an extended resource
// that the nodes report, ours for slots of as many Instances, DRA's for an extended
// resource of a DeviceClass, with as many devices in ResourceSlices. The pods of two further arms
// ask for widgets of the example plugin, which is a .so file in one and a gRPC server in the other.
//
//   - arm.go: the arms, and their steps
//   - objects.go: the nodes, devices and pods
//   - widgets.go: the example plugin, and its widgets
//   - scheduler.go: a scheduler as a process, and what it says of itself
//   - memory.go, speed.go: what is measured
//   - table.go: the results
//
// `make bench-scheduler-process` and `make bench-plugins` run it; docs/performance.md has results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	var s size
	flag.IntVar(&s.nodes, "nodes", 5000, "nodes of each cluster")
	flag.IntVar(&s.slots, "slots", 10, "slots of each node, two an Instance; an even number")
	flag.IntVar(&s.pods, "pods", 10_000, "pods that each scheduler binds first, one slot each")
	flag.IntVar(&s.rounds, "rounds", 6, "how many times each scheduler is started anew for its memory, and then binds further pods for its speed; the schedulers take turns")
	flag.IntVar(&s.further, "further", 2000, "further pods of each round")
	flag.IntVar(&s.furtherDRA, "further-dra", 250, "further pods of each round of DRA's arm, which takes longer")
	names := flag.String("arms", "plain,ours,dra", "which arms to run, comma-separated, the one to compare with first")
	profiles := flag.String("profiles", "", "directory for profiles of the last round, <arm>-heap.pprof and <arm>-cpu.pprof")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, *names, *profiles); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scheduler-process:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, s size, names, profiles string) (err error) {
	if err := s.validate(); err != nil {
		return err
	}
	arms, err := chosen(names)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-process-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, a := range arms {
		a.size, a.profiles = s, profiles
		if err := a.up(ctx, filepath.Join(dir, a.name)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.down(ctx)) }()
	}
	for _, a := range arms {
		if err := a.prepare(ctx); err != nil {
			return fmt.Errorf("arm %s: %w", a.name, err)
		}
	}
	if err := inTurn(s.rounds, arms, func(a *arm, _ int) error { return a.restart(ctx) }); err != nil {
		return err
	}
	for _, a := range arms {
		if err := a.startForSpeed(ctx); err != nil {
			return fmt.Errorf("arm %s: %w", a.name, err)
		}
		defer func() { err = errors.Join(err, a.running.stop()) }()
	}
	if err := inTurn(s.rounds, arms, func(a *arm, round int) error { return a.bindFurther(ctx, round) }); err != nil {
		return err
	}
	return write(os.Stdout, s, arms)
}

// inTurn calls one for each arm in each round. Who is first changes, for the
// machine is not always equally fast.
func inTurn(rounds int, arms []*arm, one func(a *arm, round int) error) error {
	for round := range rounds {
		for i := range arms {
			a := arms[(i+round)%len(arms)]
			if err := one(a, round); err != nil {
				return fmt.Errorf("arm %s, round %d: %w", a.name, round+1, err)
			}
		}
	}
	return nil
}
