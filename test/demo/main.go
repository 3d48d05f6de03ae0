// Command demo brings up a real cluster and shows Kubeslot at work: two cameras
// with two slots each, shared by pods that want two cameras each, and a device that
// is plugged in while a pod waits for it. KEEP=1 leaves the cluster up. With -helm the
// cluster is a stock one, and Kubeslot comes and goes with its chart.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeslot/kubeslot/test/cluster"
)

//go:embed cameras.yaml
var cameras string

//go:embed viewers.yaml
var viewers string

// defaultName is the cluster's, which `make demo-down` takes down.
const defaultName = "demo"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	helm := flag.Bool("helm", false, "install the chart on a stock cluster")
	name := flag.String("name", defaultName, "the cluster's name")
	flag.Parse()
	if err := run(ctx, *name, *helm); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, helm bool) (err error) {
	cfg, err := inMode(cluster.Config{Name: name, Out: os.Stdout})
	if err != nil {
		return err
	}
	keep := os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0"
	if helm {
		return withHelm(ctx, cfg, keep)
	}
	title("Bring up a cluster: API server, two nodes with kubelet, kubecri and containerd, our scheduler and controller")
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if keep && err == nil {
			err = howToUse(ctx, c)
			return
		}
		title("Take the cluster down")
		err = errors.Join(err, c.Down(context.Background()))
	}()
	s, err := newShow(ctx, c)
	if err != nil {
		return err
	}
	if len(cfg.DevicePlugin) > 0 {
		return s.playDevicePlugins()
	}
	return s.play()
}

// howToUse says how to use the cluster, and serves the page that shows it.
func howToUse(ctx context.Context, c *cluster.Cluster) error {
	title("The cluster stays up (KEEP=1)")
	err := c.Run(cluster.Program{Name: "ui", Argv: []string{filepath.Join(c.BinDir(), "kubectl-kubeslot"), "ui"},
		Env: []string{"KUBECONFIG=" + c.Kubeconfig()}})
	if err != nil {
		return err
	}
	page, err := address(ctx, c.LogPath("ui", ""))
	if err != nil {
		return err
	}
	fmt.Printf(`See it:
  %s
Use it:
  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl kubeslot slots
  kubectl get pods,configurations,instances,deviceslices,slotclaims -o wide
  kubectl exec viewer-3 -- /app env
  go run ./test/cluster/cmd/cluster plug --name %s node-a sensor1
Its image for pods of your own is %s, with imagePullPolicy Never. What it can do:
  kubectl exec viewer-3 -- /app --help
Its nodes' directories are in %s, its logs in %s
Take it down:
  %s
`, page, c.Kubeconfig(), c.BinDir(), c.Config().Name, cluster.AppImage, filepath.Dir(c.Nodes()[0].Dir), filepath.Dir(c.LogPath("kube-scheduler", "")), takeDown(c.Config().Name))
	return nil
}

// takeDown is the command that takes the cluster down.
func takeDown(name string) string {
	if name == defaultName {
		return "make demo-down"
	}
	return "make demo-down NAME=" + name
}

// address waits for the address of the page, which is in the log.
func address(ctx context.Context, log string) (page string, err error) {
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		text, err := os.ReadFile(log)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "http://") {
				page = strings.TrimSpace(line)
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		err = fmt.Errorf("waited for the page's address in %s: %w", log, err)
	}
	return page, err
}

var started = time.Now()

func title(text string) {
	fmt.Printf("\n\033[1m[%5.1fs] %s\033[0m\n", time.Since(started).Seconds(), text)
}
