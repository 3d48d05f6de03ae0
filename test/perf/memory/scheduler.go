package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// memory is what a scheduler uses, in bytes.
type memory struct {
	resident, heap float64
	// peak is the most that was resident since its start.
	peak float64
}

const (
	deadline = 5 * time.Minute
	poll     = 500 * time.Millisecond
	// Memory has settled when this many readings, each after a collection,
	// differ by no more than the tolerance.
	readings          = 8
	relativeTolerance = 0.02
	absoluteTolerance = 2 << 20
	// startUp is when ours has given back what only its start needed (footprint).
	startUp = 15 * time.Second
)

// bindAll starts the scheduler and measures it once it has bound all pods.
func (a *arm) bindAll(ctx context.Context) (err error) {
	s, err := a.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	begin := time.Now()
	// It counts a pod before the API does.
	if err := s.await(ctx, "it has bound all pods", func(m testutil.Metrics) error {
		if err := a.knowsAll(m); err != nil {
			return err
		}
		return a.checkBound(ctx)
	}); err != nil {
		return err
	}
	progress("%s: all pods are bound after %s", a.name, time.Since(begin).Round(time.Second))
	a.scheduled, err = s.settled(ctx)
	return err
}

// restarted starts the scheduler anew and measures it once it knows everything.
func (a *arm) restarted(ctx context.Context) (m memory, err error) {
	s, err := a.start(ctx)
	if err != nil {
		return memory{}, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.await(ctx, "it knows all nodes, pods and slots", a.knowsAll); err != nil {
		return memory{}, err
	}
	if m, err = s.settled(ctx); err != nil {
		return m, err
	}
	progress("%s: %.0f MiB resident, %.0f MiB heap", a.name, m.resident/(1<<20), m.heap/(1<<20))
	if a.profiles == "" {
		return m, nil
	}
	profile, err := s.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return m, err
	}
	return m, os.WriteFile(filepath.Join(a.profiles, a.name+".pprof"), profile, 0o644)
}

// knowsAll reports whether the scheduler's caches hold the whole cluster.
func (a *arm) knowsAll(m testutil.Metrics) error {
	want := map[string]float64{`scheduler_cache_size{type="nodes"}`: float64(a.nodes), `scheduler_cache_size{type="pods"}`: float64(a.pods)}
	if a.ours {
		want[fmt.Sprintf(`kubeslot_scheduler_slots{configuration=%q, state="held"}`, kind)] = float64(a.pods)
		want[fmt.Sprintf(`kubeslot_scheduler_slots{configuration=%q, state="free"}`, kind)] = float64(a.nodes*a.slots - a.pods)
	}
	for name, n := range want {
		if got := sample(m, name); got != n {
			return fmt.Errorf("%s is %v instead of %v", name, got, n)
		}
	}
	return nil
}

// sample finds a metric by its name and labels; 0 when there is none.
func sample(m testutil.Metrics, name string) float64 {
	family, _, _ := strings.Cut(name, "{")
	for _, s := range m[family] {
		if s.Metric.String() == name {
			return float64(s.Value)
		}
	}
	return 0
}

// scheduler is a process.
type scheduler struct {
	cmd    *exec.Cmd
	begun  time.Time
	log    string
	ended  chan struct{}
	base   string
	client http.Client
}

// install copies the scheduler, as a node has it: of the file that a linker has
// written, the page cache may hold larger pieces than of any copy, and what a process
// has mapped counts by them.
func (a *arm) install(ctx context.Context, program string) error {
	linked := filepath.Join(a.cluster.BinDir(), cluster.Scheduler)
	if text, err := exec.CommandContext(ctx, "install", "-m", "755", linked, program).CombinedOutput(); err != nil {
		return fmt.Errorf("install %s: %w: %s", linked, err, text)
	}
	a.program = program
	return nil
}

// start runs the cluster's scheduler on the host. What it serves is open to all
// on the loopback: its profile is how a collection is asked for.
func (a *arm) start(ctx context.Context) (*scheduler, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &scheduler{
		ended: make(chan struct{}),
		base:  fmt.Sprintf("https://127.0.0.1:%d", port),
		log:   a.cluster.LogPath(cluster.Scheduler, ""),
		client: http.Client{Timeout: time.Minute, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // of its own making, on the loopback
		}},
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd = exec.CommandContext(ctx, a.program,
		"--kubeconfig="+a.cluster.Kubeconfig(),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/metrics,/debug/pprof/*",
		"--kube-api-qps=2000", "--kube-api-burst=2000",
	)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.begun = time.Now()
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *scheduler) stop() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.ended
	return nil
}

// await polls the scheduler's metrics until done returns nil.
func (s *scheduler) await(ctx context.Context, what string, done func(testutil.Metrics) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, deadline, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.ended:
			return false, errors.New("it has ended")
		default:
		}
		m, err := s.metrics(ctx)
		if err == nil {
			err = done(m)
		}
		last = err
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w; last seen: %w; its log is %s", what, err, last, s.log)
	}
	return nil
}

// settled waits until collections free no more memory and the runtime returns no
// more of it to the system.
func (s *scheduler) settled(ctx context.Context) (memory, error) {
	var seen []memory
	err := s.await(ctx, "its memory settles", func(testutil.Metrics) error {
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
	m.peak, err = peakOf(s.cmd.Process.Pid)
	return m, err
}

func differ(a, b float64) bool {
	return math.Abs(a-b) > max(absoluteTolerance, relativeTolerance*max(a, b))
}

// peakOf reads VmHWM, see proc(5).
func peakOf(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib * 1024, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}

func (s *scheduler) metrics(ctx context.Context) (testutil.Metrics, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	m := testutil.NewMetrics()
	return m, testutil.ParseMetrics(string(text), &m)
}

func (s *scheduler) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", path, resp.Status, body)
	}
	return body, err
}
