package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/component-base/metrics/testutil"
)

// memory is what a scheduler uses, in bytes.
type memory struct {
	resident, heap float64
	// peak is the most that was resident since its start.
	peak float64
}

const (
	// Memory has settled when this many readings, each after a collection,
	// differ by no more than the tolerance.
	readings          = 8
	relativeTolerance = 0.02
	absoluteTolerance = 2 << 20
	// startUp is when ours has given back what only its start needed (footprint).
	startUp = 15 * time.Second
)

// settled waits until collections free no more memory and the runtime returns no
// more of it to the system.
func (s *scheduler) settled(ctx context.Context) (memory, error) {
	var seen []memory
	err := s.await(ctx, "its memory settles", func(ctx context.Context, _ testutil.Metrics) error {
		if age := time.Since(s.begun); age < startUp {
			return fmt.Errorf("it is %s old, want %s", age, startUp)
		}
		if _, err := s.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
		m, err := s.metrics(ctx)
		if err != nil {
			return err
		}
		now := memory{resident: sample(m, "process_resident_memory_bytes"), heap: sample(m, "go_memstats_heap_inuse_bytes")}
		if now.resident == 0 || now.heap == 0 {
			return errors.New("its metrics lack process_resident_memory_bytes or go_memstats_heap_inuse_bytes")
		}
		if seen = append(seen, now); len(seen) < readings {
			return fmt.Errorf("%d readings, want %d", len(seen), readings)
		}
		seen = seen[len(seen)-readings:]
		for _, other := range seen {
			if differ(now.resident, other.resident) || differ(now.heap, other.heap) {
				return fmt.Errorf("memory is %+v, and was %+v", now, other)
			}
		}
		return nil
	})
	if err != nil {
		return memory{}, err
	}
	m := seen[len(seen)-1]
	p, err := procfs.NewProc(s.cmd.Process.Pid)
	if err != nil {
		return m, err
	}
	status, err := p.NewStatus()
	m.peak = float64(status.VmHWM)
	return m, err
}

func differ(a, b float64) bool {
	return math.Abs(a-b) > max(absoluteTolerance, relativeTolerance*max(a, b))
}
