package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/test/cluster"
)

const (
	deadline = 5 * time.Minute
	// often is for what is timed. Each look costs the scheduler some milliseconds, with
	// all its devices.
	often  = 20 * time.Millisecond
	seldom = 250 * time.Millisecond
)

// await polls until done returns nil.
func await(ctx context.Context, what string, poll time.Duration, done func() error) error {
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

// scheduler is our kube-scheduler's metrics.
type scheduler struct{ client *http.Client }

func newScheduler(c *cluster.Cluster) (*scheduler, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	// Its certificate is of its own making.
	config.Insecure, config.CAData, config.CAFile = true, nil, ""
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.Dial(ctx, "", network, address)
	}
	client, err := rest.HTTPClientFor(config)
	return &scheduler{client}, err
}

// free is how many slots the scheduler can give, by Configuration.
func (s *scheduler) free(ctx context.Context) (map[string]int, error) {
	const metric = "kubeslot_scheduler_slots{"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:10259/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the scheduler's metrics: %s", resp.Status)
	}
	// Only these lines, for it is read often.
	var text strings.Builder
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), metric) {
			text.WriteString(lines.Text() + "\n")
		}
	}
	m := testutil.NewMetrics()
	if err := errors.Join(lines.Err(), testutil.ParseMetrics(text.String(), &m)); err != nil {
		return nil, err
	}
	free := map[string]int{}
	for _, sample := range m["kubeslot_scheduler_slots"] {
		if sample.Metric["state"] == "free" {
			free[string(sample.Metric["configuration"])] += int(sample.Value)
		}
	}
	return free, nil
}

func (s *scheduler) awaitFree(ctx context.Context, what string, poll time.Duration, enough func(free map[string]int) bool) error {
	return await(ctx, what, poll, func() error {
		free, err := s.free(ctx)
		if err == nil && !enough(free) {
			err = fmt.Errorf("free slots: %v", free)
		}
		return err
	})
}

// writes counts what was written, by "<kind of writer> <resource>".
type writes map[string]int

func (w writes) of(writer string) (n int) {
	for what, count := range w {
		if strings.HasPrefix(what, writer+" ") {
			n += count
		}
	}
	return n
}

func (w writes) since(before writes) writes {
	now := writes{}
	for what, n := range w {
		if n != before[what] {
			now[what] = n - before[what]
		}
	}
	return now
}

// Our writers.
const (
	kubecri    = "kubecri"
	controller = "controller"
)

var users = map[string]string{"system:kubecri:" + nodeName: kubecri, "system:kubeslot-controller": controller}

// written counts the writes in the API server's audit log. Events are not of interest.
func written(c *cluster.Cluster) (writes, error) {
	f, err := os.Open(c.AuditLog())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n := writes{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			User      struct{ Username string }
			ObjectRef struct{ Resource string }
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the last line may be half written
		}
		if writer, ours := users[e.User.Username]; ours && e.ObjectRef.Resource != "events" {
			n[writer+" "+e.ObjectRef.Resource]++
		}
	}
	return n, lines.Err()
}

// settle waits until nothing of ours has been written for 5 s.
func settle(ctx context.Context, c *cluster.Cluster) (writes, error) {
	var last writes
	var since time.Time
	err := await(ctx, "kubecri and the controller write nothing more", seldom, func() error {
		if time.Since(since) < 5*time.Second {
			return errors.New("they wrote a moment ago")
		}
		now, err := written(c)
		if err != nil {
			return err
		}
		if new := now.since(last); last == nil || len(new) > 0 {
			last, since = now, time.Now()
			return fmt.Errorf("written: %v", new)
		}
		return nil
	})
	return last, err
}

// usage is what some processes use.
type usage struct {
	cpu                 float64 // seconds
	resident, anonymous float64 // MiB, and of it what is not pages of files
}

func use(pids ...int) (u usage, err error) {
	for _, pid := range pids {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return u, err
		}
		stat, err := p.Stat()
		if err != nil {
			return u, err
		}
		status, err := p.NewStatus()
		if err != nil {
			return u, err
		}
		cpu, err := cpuSeconds(pid)
		if err != nil {
			return u, err
		}
		u.cpu += cpu
		u.resident += float64(stat.ResidentMemory()) / (1 << 20)
		u.anonymous += float64(status.RssAnon) / (1 << 20)
	}
	return u, nil
}

// cpuSeconds is what the process has run: its CPU-time clock, see clock_getcpuclockid(3).
// /proc/<pid>/stat has it in ticks of 10 ms, which is rough for one that is idle.
func cpuSeconds(pid int) (float64, error) {
	const scheduled = 2 // and not user or system time alone
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("CPU-time clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}
