// Command memory measures the scheduler's memory apart from the API server's: the
// stock kube-scheduler and ours, each a process beside an API server of its own
// that holds the same nodes and pods. The plain arm's pods ask for an extended
// resource that the nodes report, ours for slots of as many Instances.
//
//   - objects.go: the nodes, Instances and pods
//   - scheduler.go: a scheduler as a process, and what it says of itself
//   - table.go: the results
//
// `make bench-scheduler-memory` runs it; docs/performance.md has results.
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

	"github.com/kubeslot/kubeslot/test/cluster"
)

func main() {
	var s size
	flag.IntVar(&s.nodes, "nodes", 5000, "nodes of each cluster")
	flag.IntVar(&s.slots, "slots", 10, "slots of each node, two an Instance; an even number")
	flag.IntVar(&s.pods, "pods", 10_000, "pods that each scheduler binds, one slot each")
	profiles := flag.String("profiles", "", "folder for heap profiles, <arm>.pprof, of the last start")
	rounds := flag.Int("rounds", 3, "how many times each scheduler is started again, the two in turn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, *rounds, *profiles); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scheduler-memory:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, s size, rounds int, profiles string) (err error) {
	if rounds < 1 {
		return fmt.Errorf("-rounds=%d: want at least 1", rounds)
	}
	if err := s.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-memory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	arms := []*arm{{name: "plain", size: s, profiles: profiles}, {name: "ours", size: s, profiles: profiles, ours: true}}
	for _, a := range arms {
		c, err := cluster.Up(ctx, cluster.Config{Name: "bench-memory-" + a.name, Stock: !a.ours, APIOnly: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
		a.cluster = c
		if err := a.install(ctx, filepath.Join(dir, a.name)); err != nil {
			return err
		}
	}
	for _, a := range arms {
		if err := a.prepare(ctx); err != nil {
			return fmt.Errorf("arm %s: %w", a.name, err)
		}
	}
	for round := range rounds {
		for i := range arms {
			a := arms[(i+round)%len(arms)]
			m, err := a.restarted(ctx)
			if err != nil {
				return fmt.Errorf("arm %s, round %d: %w", a.name, round+1, err)
			}
			a.rounds = append(a.rounds, m)
		}
	}
	return write(os.Stdout, s, arms[0], arms[1])
}
