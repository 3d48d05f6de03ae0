package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// way is one of the two ways to the runtime.
type way struct {
	name string
	rpc  runtimeapi.RuntimeServiceClient
}

func newWay(name string, conn grpc.ClientConnInterface) way {
	return way{name, runtimeapi.NewRuntimeServiceClient(conn)}
}

// operation is what is timed: one call, or a few that belong together.
type operation struct {
	name string
	// calls is how many are made a block, by workers at a time.
	calls, workers int
	do             func(ctx context.Context, w way) error
}

// result is what an operation came to on both ways, in the order of bench.ways.
type result struct {
	operation string
	times     [2][]time.Duration
	// cpu is kubecri's during its own blocks.
	cpu   time.Duration
	calls int
}

type bench struct {
	rounds              int
	only                *regexp.Regexp // operations to measure
	ways                []way
	devices             *deviceBench
	kubecri, containerd process
	// heap returns how much of kubecri's heap is in use, in bytes.
	heap    func(context.Context) (float64, error)
	results []result
	memory  []memory
}

// memory is what the processes use at some moment, in bytes.
type memory struct {
	when string
	// kubecri and containerd are the anonymous resident memory: without pages of files,
	// of which the kernel counts as many as it likes.
	kubecri, containerd int64
	heap                float64 // of kubecri's
}

// run measures everything, with ever more containers. It removes what it made.
func (b *bench) run(ctx context.Context) (err error) {
	box, err := newSandbox(ctx, b.ways[0], "bench-cri", "bench-cri", nil)
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := box.remove(context.WithoutCancel(ctx)); err == nil {
			err = removeErr
		}
	}()
	running, err := box.start(ctx, b.ways[0])
	if err != nil {
		return err
	}
	for _, o := range []operation{
		{"Version", 300, 1, func(ctx context.Context, w way) error { return version(ctx, w, "v1") }},
		{"Version, 16 at a time", 1600, 16, func(ctx context.Context, w way) error { return version(ctx, w, "v1") }},
		{"ExecSync", 5, 1, func(ctx context.Context, w way) error { return execSync(ctx, w, running) }},
		{"Create, Start, Stop, Remove", 2, 1, box.cycle},
	} {
		if err := b.measure(ctx, o); err != nil {
			return err
		}
	}
	if err := b.devices.run(ctx, b); err != nil {
		return err
	}
	if err := b.devices.runPlugins(ctx, b); err != nil {
		return err
	}
	for _, n := range []int{10, 100, 500} {
		if err := box.fill(ctx, b.ways[0], n); err != nil {
			return err
		}
		for _, workers := range []int{1, 16} {
			name, calls := fmt.Sprintf("ListContainers of %d", n), 1000/n+10
			if workers > 1 {
				name, calls = fmt.Sprintf("%s, %d at a time", name, workers), 4*calls
			}
			if err := b.measure(ctx, operation{name, calls, workers, func(ctx context.Context, w way) error { return list(ctx, w, n) }}); err != nil {
				return err
			}
		}
		if err := b.weigh(ctx, fmt.Sprintf("with %d containers", n)); err != nil {
			return err
		}
	}
	// Last, for the buffers that they leave behind in all processes.
	large := largeRequest()
	err = b.measure(ctx, operation{"12 MiB request", 5, 1, func(ctx context.Context, w way) error { return version(ctx, w, large) }})
	if err != nil {
		return err
	}
	return b.weigh(ctx, "just after the 12 MiB requests")
}

// weigh notes the memory of the processes.
func (b *bench) weigh(ctx context.Context, when string) (err error) {
	m := memory{when: when}
	if m.kubecri, err = b.kubecri.anonymous(); err != nil {
		return err
	}
	if m.heap, err = b.heap(ctx); err != nil {
		return err
	}
	if m.containerd, err = b.containerd.anonymous(); err != nil {
		return err
	}
	b.memory = append(b.memory, m)
	return nil
}

// measure has the ways take turns, which of them is first as well. A block of
// each that is not counted comes before.
func (b *bench) measure(ctx context.Context, o operation) error {
	if !b.only.MatchString(o.name) {
		return nil
	}
	r := result{operation: o.name}
	for round := -1; round < b.rounds; round++ {
		for turn := range b.ways {
			i := (turn + max(round, 0)) % len(b.ways)
			before, err := b.kubecri.cpu()
			if err != nil {
				return err
			}
			times, err := block(ctx, o, b.ways[i])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", o.name, b.ways[i].name, err)
			}
			if round < 0 {
				continue
			}
			r.times[i] = append(r.times[i], times...)
			if b.ways[i].name == "kubecri" {
				after, err := b.kubecri.cpu()
				if err != nil {
					return err
				}
				r.cpu += after - before
				r.calls += o.calls
			}
		}
	}
	fmt.Fprintf(os.Stderr, "%-36s direct p50 %v, kubecri p50 %v\n", o.name, quantile(r.times[0], .5), quantile(r.times[1], .5))
	b.results = append(b.results, r)
	return nil
}

// block makes o.calls calls and returns how long each took.
func block(ctx context.Context, o operation, w way) ([]time.Duration, error) {
	times := make([]time.Duration, o.calls)
	errs := make([]error, o.workers)
	var working sync.WaitGroup
	for worker := range o.workers {
		working.Go(func() {
			for i := worker; i < o.calls && errs[worker] == nil; i += o.workers {
				start := time.Now()
				errs[worker] = o.do(ctx, w)
				times[i] = time.Since(start)
			}
		})
	}
	working.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return times, nil
}
