// Command scale measures what many nodes cost the API server: hollow nodes, each with
// the real agent, claims and advertiser, connections and an identity of its own, all
// in one process, against a real API server and etcd with deploy/ applied. The nodes
// have no kubelet and no containers; pods are objects that nobody runs.
//
//   - node.go: a hollow node
//   - measure.go: what is measured: CPU, requests, bytes
//   - rows.go: what is done with N nodes
//   - bare.go: the peer, a bare client that does the fewest requests
//   - local.go: one node with ten thousand devices, in a process of its own
//   - table.go: the results, and how they grow
//
// `make bench-scale` runs it; docs/performance.md has results.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// options are the command line.
type options struct {
	nodes   []int
	shared  int           // devices that all nodes reach
	claims  int           // that are made and released one after the other
	idle    time.Duration // that is watched for writes
	devices int           // local ones, of one node
	kinds   int           // Configurations that these are of
	api     string        // kube-apiserver's file; "" is that of the tests

	profiles string // folder for the API server's CPU profiles; "" for none
}

func main() {
	var o options
	sizes := flag.String("nodes", "50,200,500,1000", "how many nodes, comma-separated, each on a cluster of its own")
	flag.IntVar(&o.shared, "shared", 10, "devices that all nodes reach")
	flag.IntVar(&o.claims, "claims", 500, "claims that are made and released one after the other")
	flag.DurationVar(&o.idle, "idle", time.Minute, "how long idle nodes are watched")
	flag.IntVar(&o.devices, "local", 10_000, "devices of the one node that has many; 0 leaves that out")
	flag.IntVar(&o.kinds, "configurations", 50, "Configurations that these are of")
	flag.StringVar(&o.api, "kube-apiserver", "", "another kube-apiserver to measure, such as one of another version")
	flag.StringVar(&o.profiles, "profile", "", "directory for CPU profiles of the API server, one a row and number of nodes; they cost CPU, too")
	inside := flag.String("inside", "", "what to measure on the cluster that is up, \"size\" or \"local\"; the command runs itself so, in the control plane's network namespace")
	only := flag.String("hollow-node", "", "run one hollow node of this name until standard input ends; for -local, by the command itself")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // of a thousand nodes nobody reads the logs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.setSizes(*sizes)
	switch {
	case err != nil:
	case *only != "":
		err = runOnly(ctx, *only)
	case *inside != "":
		err = runInside(ctx, &o, *inside)
	default:
		err = run(ctx, &o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		stop()
		os.Exit(1)
	}
}

func (o *options) setSizes(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-nodes=%s: %q is not a number of nodes", list, text)
		}
		o.nodes = append(o.nodes, n)
	}
	if o.shared < 1 || o.claims < 1 || o.kinds < 1 || o.devices%o.kinds != 0 {
		return errors.New("-shared, -claims and -configurations want at least 1, -local a multiple of -configurations")
	}
	return nil
}

// run measures each size, and then the one node with many devices.
func run(ctx context.Context, o *options) error {
	var results []result
	for _, n := range o.nodes {
		r, err := onCluster[result](ctx, o, "size", n)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		results = append(results, r)
	}
	var local *localResult
	if o.devices > 0 {
		r, err := onCluster[localResult](ctx, o, "local", 1)
		if err != nil {
			return fmt.Errorf("%d local devices: %w", o.devices, err)
		}
		local = &r
	}
	return write(os.Stdout, o, results, local)
}

// onCluster measures something on an API server of its own. It runs in the API
// server's network namespace: the way there from the host is a forwarder's, which has
// not enough files for all connections.
func onCluster[R any](ctx context.Context, o *options, what string, nodes int) (r R, err error) {
	config := cluster.Config{Name: clusterName, APIOnly: true}
	if o.api != "" {
		config.Binaries = map[string]string{cluster.APIServer: o.api}
	}
	c, err := cluster.Up(ctx, config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	pid, err := c.PID(cluster.APIServer, "")
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), self, "-inside="+what, fmt.Sprintf("-nodes=%d", nodes),
		fmt.Sprintf("-shared=%d", o.shared), fmt.Sprintf("-claims=%d", o.claims), "-idle="+o.idle.String(),
		fmt.Sprintf("-local=%d", o.devices), fmt.Sprintf("-configurations=%d", o.kinds), "-profile="+o.profiles)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// runInside prints what was measured as JSON.
func runInside(ctx context.Context, o *options, what string) error {
	c, err := cluster.Attach(cluster.Config{Name: clusterName, APIOnly: true})
	if err != nil {
		return err
	}
	b, err := newBench(c, o)
	if err != nil {
		return err
	}
	var r any
	if what == "local" {
		r, err = b.local(ctx)
	} else {
		r, err = b.size(ctx, o.nodes[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

const clusterName = "bench-scale"

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
