package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/procfs"
	"k8s.io/component-base/metrics/testutil"
)

// memory is what a scheduler uses, in bytes: heap in use, and the resident memory that no
// file backs. Pages of the program's file are the page cache's.
type memory struct{ heap, anonymous float64 }

const (
	// Memory has settled when this many readings, each after a collection,
	// differ by no more than the tolerance.
	readings          = 8
	relativeTolerance = 0.02
	absoluteTolerance = 2 << 20
)

// settled waits until collections free no more memory and the runtime returns no
// more of it to the system.
func (s *scheduler) settled(ctx context.Context) (memory, error) {
	var seen []memory
	err := s.await(ctx, "its memory settles", func(ctx context.Context, _ testutil.Metrics) error {
		if _, err := s.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
		m, err := s.metrics(ctx)
		if err != nil {
			return err
		}
		status, err := s.status()
		if err != nil {
			return err
		}
		now := memory{heap: sample(m, "go_memstats_heap_inuse_bytes"), anonymous: float64(status.RssAnon)}
		if now.heap == 0 {
			return errors.New("its metrics lack go_memstats_heap_inuse_bytes")
		}
		if seen = append(seen, now); len(seen) < readings {
			return fmt.Errorf("%d readings, want %d", len(seen), readings)
		}
		seen = seen[len(seen)-readings:]
		for _, other := range seen {
			if differ(now.anonymous, other.anonymous) || differ(now.heap, other.heap) {
				return fmt.Errorf("memory is %+v, and was %+v", now, other)
			}
		}
		return nil
	})
	if err != nil {
		return memory{}, err
	}
	return seen[len(seen)-1], nil
}

// status is the process's /proc/<pid>/status.
func (s *scheduler) status() (procfs.ProcStatus, error) {
	p, err := procfs.NewProc(s.cmd.Process.Pid)
	if err != nil {
		return procfs.ProcStatus{}, err
	}
	return p.NewStatus()
}

func differ(a, b float64) bool {
	return math.Abs(a-b) > max(absoluteTolerance, relativeTolerance*max(a, b))
}
