package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/test/cluster"
)

const (
	deadline = 30 * time.Minute // for 50,000 Instances
	poll     = 50 * time.Millisecond
	// quiet without a write of the controller's is its end: it writes a status at most
	// once in 5 s.
	quiet = 6 * time.Second
)

// await polls until done returns nil.
func await(ctx context.Context, what string, done func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, deadline, true, func(context.Context) (bool, error) {
		last = done()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w; last seen: %w", what, err, last)
	}
	return nil
}

// writes counts the controller's writes, by "<verb> <resource>".
type writes map[string]int

func (w writes) since(before writes) writes {
	now := writes{}
	for what, n := range w {
		if n != before[what] {
			now[what] = n - before[what]
		}
	}
	return now
}

func (w writes) sum() (n int) {
	for _, count := range w {
		n += count
	}
	return n
}

const controllerUser = "system:kubeslot-controller"

// audit reads the API server's audit log on.
type audit struct {
	file  *os.File
	lines *bufio.Reader
	rest  []byte // of a line that is half written
	seen  writes
}

func newAudit(f *os.File) *audit {
	return &audit{file: f, lines: bufio.NewReaderSize(f, 1<<20), seen: writes{}}
}

// written is what the controller has written up to now.
func (a *audit) written() (writes, error) {
	for {
		part, err := a.lines.ReadBytes('\n')
		a.rest = append(a.rest, part...)
		if errors.Is(err, io.EOF) {
			return maps.Clone(a.seen), nil
		}
		if err != nil {
			return nil, err
		}
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(a.rest, &e); err != nil {
			return nil, err
		}
		a.rest = a.rest[:0]
		if e.User.Username != controllerUser {
			continue
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if e.ResponseStatus.Code >= http.StatusBadRequest {
			what += fmt.Sprintf(" (%d)", e.ResponseStatus.Code)
		}
		a.seen[what]++
	}
}

// memory is what the controller uses, in MiB.
type memory struct {
	anonymous float64 // resident, and no pages of files
	heap      float64 // in use, without what is garbage by now
}

// controllerMemory reads the controller's memory.
func (b *bench) controllerMemory(ctx context.Context) (memory, error) {
	p, err := procfs.NewProc(b.controller.Process.Pid)
	if err != nil {
		return memory{}, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return memory{}, err
	}
	m, err := b.metrics(ctx)
	if err != nil {
		return memory{}, err
	}
	return memory{float64(status.RssAnon) / (1 << 20), m["go_memstats_heap_inuse_bytes"] / (1 << 20)}, nil
}

// metrics are the controller's, each summed over its labels.
func (b *bench) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := b.get(ctx, metricsAddress, "/metrics")
	if err != nil {
		return nil, err
	}
	m := testutil.NewMetrics()
	if err := testutil.ParseMetrics(text, &m); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for name, samples := range m {
		for _, sample := range samples {
			values[name] += float64(sample.Value)
		}
	}
	return values, nil
}

// worksOff reports what the controller's queues still have.
func (b *bench) worksOff() error {
	m, err := b.metrics(context.Background())
	if err != nil {
		return err
	}
	if n := m["workqueue_depth"] + m["controller_runtime_active_workers"]; n > 0 {
		return fmt.Errorf("%v objects are queued or worked on", n)
	}
	return nil
}

// get asks the controller.
func (b *bench) get(ctx context.Context, address, path string) (string, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return b.cluster.Dial(ctx, "", network, address)
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s%s: %s", address, path, resp.Status)
	}
	return string(text), err
}

// cpuSeconds is what the process has run: its CPU-time clock, see clock_getcpuclockid(3).
func cpuSeconds(pid int) (float64, error) {
	const scheduled = 2 // and not user or system time alone
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("CPU-time clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}

// cost is what a phase took.
type cost struct {
	took       time.Duration
	all        time.Duration // with the time until the controller writes nothing more
	controller float64       // CPU seconds
	api        float64       // CPU seconds of the API server and etcd, for this command too
	writes     writes        // the controller's
}

// phase does something, waits until it is done and, if it settles, until the controller
// writes nothing more.
func (b *bench) phase(ctx context.Context, name string, settles bool, do func() error, done func() error) (c cost, err error) {
	read := func() (cpu [3]float64, w writes, err error) {
		pids := []int{b.controller.Process.Pid}
		for _, component := range []string{cluster.APIServer, cluster.Etcd} {
			pid, err := b.cluster.PID(component, "")
			if err != nil {
				return cpu, nil, err
			}
			pids = append(pids, pid)
		}
		for i, pid := range pids {
			if cpu[i], err = cpuSeconds(pid); err != nil {
				return cpu, nil, err
			}
		}
		w, err = b.audit.written()
		return cpu, w, err
	}
	cpu, wrote, err := read()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	if err := await(ctx, name, done); err != nil {
		return c, err
	}
	c.took = time.Since(begin)
	if settles {
		if err := b.settle(ctx); err != nil {
			return c, err
		}
	}
	c.all = time.Since(begin)
	if err := b.kubelets.err(); err != nil {
		return c, err
	}
	cpuNow, wroteNow, err := read()
	c.controller, c.api, c.writes = cpuNow[0]-cpu[0], cpuNow[1]-cpu[1]+cpuNow[2]-cpu[2], wroteNow.since(wrote)
	progress("%s: %s, CPU %.2f s and the API server's %.2f s, writes %v", name, c.took.Round(10*time.Millisecond), c.controller, c.api, c.writes)
	return c, err
}

// settle waits until the controller writes nothing more.
func (b *bench) settle(ctx context.Context) error {
	last, since := -1, time.Now()
	return await(ctx, "the controller writes nothing more", func() error {
		now, err := b.audit.written()
		if err != nil {
			return err
		}
		if n := now.sum(); n != last {
			last, since = n, time.Now()
		}
		if still := time.Since(since); still < quiet {
			return fmt.Errorf("it wrote %s ago", still)
		}
		return nil
	})
}
