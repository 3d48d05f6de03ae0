// Command cri measures what kubecri costs: the same CRI calls straight to
// containerd and through kubecri, in one run, on the programs of a test cluster.
// Client, kubecri and containerd are processes of their own; kubelets are stopped,
// since they would remove containers that they do not know. Before that, pods are
// started through kubelets at either socket.
//
// The two ways take turns in short blocks, so that whatever else the machine
// does meets both. `make bench-cri` runs it; docs/performance.md has results.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// maxMessage is what the kubelet and containerd take.
const maxMessage = 16 << 20

func main() {
	name := flag.String("cluster", "bench-cri", "name of the cluster, which is brought up and taken down")
	attach := flag.Bool("attach", false, "use a cluster that is up, and leave it up; its first node's kubelet and containers go")
	rounds := flag.Int("rounds", 10, "how many times both ways take turns")
	pods := flag.Int("pods", 10, "pods to start in each block through real kubelets, one after the other and all at a time; 0 for none")
	only := flag.String("run", "", "regular expression of the operations to measure, as in the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *name, *attach, *rounds, *pods, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench-cri:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, attach bool, rounds, pods int, only string) (err error) {
	if rounds < 1 || pods < 0 {
		return fmt.Errorf("-rounds=%d -pods=%d: want at least 1 round, and no fewer than 0 pods", rounds, pods)
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	cfg := cluster.Config{Name: name, Nodes: []string{"node-a", "node-b"}}
	bring := cluster.Up
	if !attach {
		dir, err := os.MkdirTemp("", "bench-cri-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if cfg.Binaries, err = installed(ctx, dir); err != nil {
			return err
		}
	} else {
		bring = func(_ context.Context, cfg cluster.Config) (*cluster.Cluster, error) { return cluster.Attach(cfg) }
	}
	c, err := bring(ctx, cfg)
	if err != nil {
		return err
	}
	if !attach {
		defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	}
	b := &bench{rounds: rounds, only: pattern}
	if pods > 0 && pattern.MatchString("Pod start") {
		p, err := newPodBench(c, (rounds+1)/2, pods, pods)
		if err != nil {
			return err
		}
		if b.results, err = p.run(ctx); err != nil {
			return err
		}
	}
	node := c.Nodes()[0]
	for _, n := range c.Nodes() {
		if err := stop(c, cluster.Kubelet, n.Name); err != nil {
			return err
		}
	}
	if err := stop(c, cluster.Scheduler, ""); err != nil {
		return err
	}
	for _, way := range []struct{ name, socket string }{{"direct", node.ContainerdSocket}, {"kubecri", node.KubecriSocket}} {
		conn, err := grpc.NewClient("unix://"+way.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
		if err != nil {
			return err
		}
		defer conn.Close()
		b.ways = append(b.ways, newWay(way.name, conn))
	}
	for component, process := range map[string]*process{cluster.Kubecri: &b.kubecri, cluster.Containerd: &b.containerd} {
		if process.pid, err = c.PID(component, node.Name); err != nil {
			return err
		}
	}
	b.heap = heapOf(c, node.Name)
	if b.devices, err = newDeviceBench(c, node.Name); err != nil {
		return err
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	return b.write(os.Stdout)
}

// heapOf returns what reads how much of the heap of the node's kubecri is in use.
func heapOf(c *cluster.Cluster, node string) func(context.Context) (float64, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Dial(ctx, node, network, address)
		}}}
	const metric = "go_memstats_heap_inuse_bytes"
	return func(ctx context.Context) (float64, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10349/metrics", nil)
		if err != nil {
			return 0, err
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, fmt.Errorf("kubecri's metrics on node %s: %w", node, err)
		}
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), metric+" "); ok {
				return strconv.ParseFloat(value, 64)
			}
		}
		return 0, errors.Join(fmt.Errorf("kubecri's metrics on node %s have no %s", node, metric), lines.Err())
	}
}

// installed builds kubecri and installs it, as on a node, by copying: of the file
// that a linker has written, the page cache may hold larger pieces than of any copy,
// and what a process has mapped counts by them.
func installed(ctx context.Context, dir string) (map[string]string, error) {
	const pkg = "./kubecri/cmd/kubecri"
	built, err := build.Programs{Root: ".", Packages: []string{pkg}, Out: os.Stderr}.Run(ctx)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(dir, cluster.Kubecri)
	install := exec.CommandContext(ctx, "install", "-m", "755", built[pkg], program)
	if text, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", install, err, text)
	}
	return map[string]string{cluster.Kubecri: program}, nil
}

// stop ends a component that may have ended.
func stop(c *cluster.Cluster, component, node string) error {
	if err := c.Kill(component, node, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
