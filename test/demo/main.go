// Command demo brings up a real cluster and shows Kubeslot at work: two cameras
// with two slots each, shared by pods that want two cameras each, and a device that
// is plugged in while a pod waits for it. KEEP=1 leaves the cluster up.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubeslot/kubeslot/test/cluster"
)

//go:embed cameras.yaml
var cameras string

//go:embed viewers.yaml
var viewers string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	cfg := cluster.Config{Name: "demo", Out: os.Stdout}
	keep := os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0"
	title("Bring up a cluster: API server, two nodes with kubelet, kubecri and containerd, our scheduler and controller")
	if err := cluster.Down(ctx, cfg); err != nil {
		return fmt.Errorf("take down the last demo's cluster: %w", err)
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if keep && err == nil {
			howToUse(c)
			return
		}
		title("Take the cluster down")
		err = errors.Join(err, c.Down(context.Background()))
	}()
	s, err := newShow(ctx, c)
	if err != nil {
		return err
	}
	return s.play()
}

func howToUse(c *cluster.Cluster) {
	title("The cluster stays up (KEEP=1)")
	fmt.Printf(`Use it:
  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get pods,configurations,instances,deviceslices,slotclaims -o wide
  kubectl exec viewer-3 -- /app env
  go run ./test/cluster/cmd/cluster plug --name demo node-a sensor1
Its logs are in %s
Take it away:
  make demo-down
`, c.Kubeconfig(), c.BinDir(), filepath.Dir(c.LogPath("kube-scheduler", "")))
}

var started = time.Now()

func title(text string) {
	fmt.Printf("\n\033[1m[%5.1fs] %s\033[0m\n", time.Since(started).Seconds(), text)
}
