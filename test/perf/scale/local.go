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

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// localResult is what one node with many devices costs.
type localResult struct {
	cost
	Resident  float64 // MiB of the node's process that no file backs
	Resources int     // of ours in node.status
}

const manyDevices = "node-with-many"

// local measures one node with many devices of several Configurations. The
// Configurations are there first: it is the node's start that is measured.
func (b *bench) local(ctx context.Context) (r localResult, err error) {
	if err := b.createNode(ctx, manyDevices); err != nil {
		return r, err
	}
	for i := range b.kinds {
		c := configuration(fmt.Sprintf("sensors-%d", i), details("local", b.devices/b.kinds, "sensor-%d-%d", i))
		if _, err := b.client.AkriV0().Configurations(namespace).Create(ctx, c, metav1.CreateOptions{}); err != nil {
			return r, err
		}
	}
	s, err := b.startScheduler(ctx)
	if err != nil {
		return r, err
	}
	defer s.end()
	if err := await(ctx, "the scheduler runs", func() error { _, err := s.freeSlots(ctx); return err }); err != nil {
		return r, err
	}
	var n *child
	r.cost, err = b.measure(ctx, func() (err error) {
		if n, err = b.startChild(ctx); err != nil {
			return err
		}
		// Two of six-digit names may meet, and then one of the devices is left out.
		want := float64(b.devices*capacity) * 0.999
		return await(ctx, "the scheduler has all slots", func() error {
			free, err := s.freeSlots(ctx)
			if err == nil && free < want {
				err = fmt.Errorf("%v of %v slots are free", free, want)
			}
			return err
		})
	})
	if err != nil {
		return r, err
	}
	if err := b.settle(ctx); err != nil {
		return r, err
	}
	if r.Resident, err = anonymous(n.cmd.Process.Pid); err != nil {
		return r, err
	}
	node, err := b.kube.CoreV1().Nodes().Get(ctx, manyDevices, metav1.GetOptions{})
	if err != nil {
		return r, err
	}
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), "akri.sh/") {
			r.Resources++
		}
	}
	return r, n.end()
}

// anonymous is the memory of a process that no file backs, in MiB.
func anonymous(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	return float64(status.RssAnon) / (1 << 20), err
}

// child is a process that runs one hollow node.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func (b *bench) startChild(ctx context.Context) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "-hollow-node="+manyDevices)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

func (c *child) end() error {
	return errors.Join(c.stdin.Close(), c.cmd.Wait())
}

// runOnly is the child.
func runOnly(ctx context.Context, name string) error {
	c, err := cluster.Attach(cluster.Config{Name: clusterName, APIOnly: true})
	if err != nil {
		return err
	}
	admin, err := adminInside(c)
	if err != nil {
		return err
	}
	config, err := identity(c, admin.Host, name, &traffic{})
	if err != nil {
		return err
	}
	n, err := start(ctx, name, config)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	n.end()
	return err
}

// scheduler is our kube-scheduler as a process.
type scheduler struct {
	cmd    *exec.Cmd
	url    string
	client http.Client
}

func (b *bench) startScheduler(ctx context.Context) (*scheduler, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	log, err := os.Create(b.cluster.LogPath(cluster.Scheduler, ""))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &scheduler{url: fmt.Sprintf("https://127.0.0.1:%d/metrics", port)}
	s.client = http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // of its own making, on the loopback
	}}
	s.cmd = exec.CommandContext(ctx, filepath.Join(b.cluster.BinDir(), cluster.Scheduler),
		"--kubeconfig="+b.cluster.Kubeconfig(), "--master="+b.admin.Host, "--leader-elect=false", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port), "--authorization-always-allow-paths=/metrics")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s, s.cmd.Start()
}

func (s *scheduler) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freeSlots is how many slots the scheduler can give.
func (s *scheduler) freeSlots(ctx context.Context) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET %s: %s: %w", s.url, resp.Status, err)
	}
	m := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &m); err != nil {
		return 0, err
	}
	free := 0.0
	for _, sample := range m["kubeslot_scheduler_slots"] {
		if sample.Metric["state"] == "free" {
			free += float64(sample.Value)
		}
	}
	return free, nil
}
