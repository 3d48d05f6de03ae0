package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	deadline = 5 * time.Minute
	poll     = 20 * time.Millisecond

	// profileTime is how long a row is profiled.
	profileTime = 20 * time.Second
)

// bench is one cluster that is measured.
type bench struct {
	*options
	cluster *cluster.Cluster
	admin   *rest.Config
	kube    kubernetes.Interface
	client  versioned.Interface
	traffic traffic // of all hollow nodes
	nodes   []*node

	identities []*rest.Config // of the nodes
}

func newBench(c *cluster.Cluster, o *options) (*bench, error) {
	b := &bench{options: o, cluster: c}
	var err error
	if b.admin, err = adminInside(c); err != nil {
		return nil, err
	}
	b.admin.QPS = -1
	if b.kube, err = kubernetes.NewForConfig(b.admin); err != nil {
		return nil, err
	}
	b.client, err = versioned.NewForConfig(b.admin)
	return b, err
}

// adminInside is the administrator as in the control plane's network namespace: the
// controller manager knows the API server's address there.
func adminInside(c *cluster.Cluster) (*rest.Config, error) {
	admin, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	inside, err := clientcmd.BuildConfigFromFlags("", c.ComponentKubeconfig(cluster.ControllerManager, ""))
	if err != nil {
		return nil, err
	}
	admin.Host = inside.Host
	return admin, nil
}

// cost is what the API server and etcd did.
type cost struct {
	Seconds            float64 // that passed
	API, Etcd          float64 // CPU seconds
	Own                float64 // CPU seconds of the hollow nodes and the benchmark
	Sent               float64 // bytes to the hollow nodes
	Writes, Conflicts  float64 // requests that write our objects or nodes, and 409s among them
	Slices, NodeWrites float64 // writes of DeviceSlices, and of Nodes
	Leases, LeaseLists float64 // writes of Leases, and lists; these are not among Writes
}

func (c cost) cpu() float64 { return c.API + c.Etcd }

func (c cost) plus(d cost) cost {
	return cost{
		Seconds: c.Seconds + d.Seconds, API: c.API + d.API, Etcd: c.Etcd + d.Etcd, Own: c.Own + d.Own, Sent: c.Sent + d.Sent,
		Writes: c.Writes + d.Writes, Conflicts: c.Conflicts + d.Conflicts,
		Slices: c.Slices + d.Slices, NodeWrites: c.NodeWrites + d.NodeWrites,
		Leases: c.Leases + d.Leases, LeaseLists: c.LeaseLists + d.LeaseLists,
	}
}

func (c cost) minus(d cost) cost {
	return c.plus(cost{
		Seconds: -d.Seconds, API: -d.API, Etcd: -d.Etcd, Own: -d.Own, Sent: -d.Sent,
		Writes: -d.Writes, Conflicts: -d.Conflicts, Slices: -d.Slices, NodeWrites: -d.NodeWrites,
		Leases: -d.Leases, LeaseLists: -d.LeaseLists,
	})
}

// cpu reads what the processes have used.
func (b *bench) cpu(c *cost) error {
	var errs [3]error
	c.API, errs[0] = cpuSeconds(b.cluster.PID(cluster.APIServer, ""))
	c.Etcd, errs[1] = cpuSeconds(b.cluster.PID(cluster.Etcd, ""))
	c.Own, errs[2] = cpuSeconds(os.Getpid(), nil)
	c.Sent = float64(b.traffic.received.Load())
	return errors.Join(errs[:]...)
}

// requests counts writes, as the API server has counted them. Asking costs it some 50 ms.
func (b *bench) requests(ctx context.Context, c *cost) error {
	text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	m := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(text), &m); err != nil {
		return err
	}
	c.count(m)
	return nil
}

func (c *cost) count(m testutil.Metrics) {
	for _, sample := range m["apiserver_request_total"] {
		label := func(name string) string { return string(sample.Metric[testutil.LabelName(name)]) }
		n := float64(sample.Value)
		switch label("verb") {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		case "LIST":
			if label("resource") == "leases" {
				c.LeaseLists += n
			}
			continue
		default:
			continue
		}
		switch label("resource") {
		case "deviceslices":
			c.Slices += n
		case "nodes":
			c.NodeWrites += n
		case "leases":
			c.Leases += n
			continue
		case "slotclaims", "instances", "configurations":
		default:
			continue
		}
		c.Writes += n
		if label("code") == "409" {
			c.Conflicts += n
		}
	}
}

func cpuSeconds(pid int, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}

// measure does something and returns what it cost. The API server's CPU for being asked
// what it did is not in it.
func (b *bench) measure(ctx context.Context, do func() error) (cost, error) {
	var before, after cost
	if err := errors.Join(b.requests(ctx, &before), b.cpu(&before)); err != nil {
		return cost{}, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return cost{}, err
	}
	after.Seconds = time.Since(begin).Seconds()
	// What the watchers are told comes after the answer.
	if err := b.quiet(ctx); err != nil {
		return cost{}, err
	}
	err := errors.Join(b.cpu(&after), b.requests(ctx, &after))
	return after.minus(before), err
}

// profile writes the API server's CPU profile of what happens until end is called, or for
// profileTime, to the folder of -profile. end waits for that.
func (b *bench) profile(ctx context.Context, name string, nodes int) (end func() error) {
	if b.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").
			Param("seconds", strconv.Itoa(int(profileTime.Seconds()))).Timeout(2 * profileTime).DoRaw(ctx)
		if err == nil {
			err = os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%s-%d.pprof", name, nodes)), text, 0o600)
		}
		done <- err
	}()
	return func() error { return <-done }
}

// quiet waits until the nodes are told hardly anything for a moment: watches have
// bookmarks, so that it is never nothing.
func (b *bench) quiet(ctx context.Context) error {
	last, since := b.traffic.received.Load(), time.Now()
	return await(ctx, "the nodes are told everything", func() error {
		still := time.Since(since)
		if still < 500*time.Millisecond {
			return fmt.Errorf("%s have passed", still)
		}
		now := b.traffic.received.Load()
		sent := now - last
		last, since = now, time.Now()
		if sent > int64(100*len(b.identities)+2000) {
			return fmt.Errorf("%d bytes came within %s", sent, still)
		}
		return nil
	})
}

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
