package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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
	"github.com/kubeslot/kubeslot/test/cluster/build"
)

const (
	deadline = 20 * time.Minute // DRA binds some fifty pods a second
	poll     = 500 * time.Millisecond
)

// knowsAll reports whether the scheduler's caches hold the whole cluster.
func (a *arm) knowsAll(_ context.Context, m testutil.Metrics) error {
	want := map[string]float64{`scheduler_cache_size{type="nodes"}`: float64(a.nodes), `scheduler_cache_size{type="pods"}`: float64(a.created)}
	if a.ours {
		want[fmt.Sprintf(`kubeslot_scheduler_slots{configuration=%q, state="held"}`, kind)] = float64(a.created)
		want[fmt.Sprintf(`kubeslot_scheduler_slots{configuration=%q, state="free"}`, kind)] = float64(a.nodes*a.slots - a.created)
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
	log    string
	ended  chan struct{}
	base   string
	client http.Client
}

// stock is the stock scheduler as Kubernetes releases it. The cluster's is one program with
// the API server and others, whose packages take memory, too.
const stock = "k8s.io/kubernetes/cmd/kube-scheduler"

// install copies the scheduler, as a node has it: of the file that a linker has
// written, the page cache may hold larger pieces than of any copy, and what a process
// has mapped counts by them.
func (a *arm) install(ctx context.Context, program string) error {
	linked := filepath.Join(a.cluster.BinDir(), cluster.Scheduler)
	if a.stock() {
		root := a.cluster.Config().RepoRoot
		built, err := build.Programs{Root: root, Packages: []string{stock}, Static: true, Out: os.Stderr}.Run(ctx)
		if err != nil {
			return err
		}
		linked = built[stock]
	}
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
	s.cmd.Args = append(s.cmd.Args, a.plugin.flags...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
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
func (s *scheduler) await(ctx context.Context, what string, done func(context.Context, testutil.Metrics) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, deadline, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.ended:
			return false, errors.New("it has ended")
		default:
		}
		m, err := s.metrics(ctx)
		if err == nil {
			err = done(ctx, m)
		}
		last = err
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w; last seen: %w; its log is %s", what, err, last, s.log)
	}
	return nil
}

// profile writes what the scheduler answers, if profiles are wanted.
func (a *arm) profile(ctx context.Context, s *scheduler, kind, path string) error {
	if a.profiles == "" {
		return nil
	}
	text, err := s.get(ctx, path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.profiles, a.name+"-"+kind+".pprof"), text, 0o644)
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
