// Package deviceplugin tests kubecri --mode=device-plugin on a real cluster: real
// kubelets and containerd, and the upstream kube-scheduler but for the tests of both modes
// in one cluster. `make test-e2e` runs it; it needs root and is skipped unless
// KUBESLOT_E2E is set. KEEP leaves the cluster up, and REUSE takes the one that is.
package deviceplugin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

var (
	shared *cluster.Cluster
	kube   kubernetes.Interface
	akri   versioned.Interface
)

const nodeA, nodeB = "node-a", "node-b"

func TestMain(m *testing.M) {
	if os.Getenv("KUBESLOT_E2E") == "" {
		fmt.Println("tests of device-plugin mode are skipped: they bring up a cluster; run `make test-e2e` as root")
		return
	}
	flag.Parse() // for testing.Short
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	cfg := cluster.Config{Name: "deviceplugin", Nodes: []string{nodeA, nodeB}, DevicePlugin: []string{nodeA, nodeB}, StockScheduler: true,
		Binaries: binaries(os.Getenv("BINARIES"))}
	if !testing.Short() {
		cfg.BuildFlags = []string{"-race"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	if os.Getenv("REUSE") != "" {
		shared, err = cluster.Attach(cfg)
	} else if err = cluster.Down(ctx, cfg); err == nil {
		shared, err = cluster.Up(ctx, cfg)
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		if os.Getenv("KEEP") != "" {
			fmt.Printf("KEEP is set: the cluster stays. export KUBECONFIG=%s; take it away with: go run ./test/cluster/cmd/cluster down --name deviceplugin\n", shared.Kubeconfig())
			return
		}
		err = errors.Join(err, shared.Down(context.Background()))
	}()
	config, err := shared.RESTConfig()
	if err != nil {
		return 0, err
	}
	config.QPS = -1
	if kube, err = kubernetes.NewForConfig(config); err != nil {
		return 0, err
	}
	if akri, err = versioned.NewForConfig(config); err != nil {
		return 0, err
	}
	code = m.Run()
	return code, checkLogs()
}

// testAll leaves the test to `make test-all`, for what it does. The others have Configurations of
// their own and run side by side: most of their time they wait for the kubelet to report.
func testAll(t *testing.T, does string) {
	t.Helper()
	if testing.Short() {
		t.Skip(does + ": make test-all")
	}
}

// binaries are the programs in a folder, to be used instead of building them; "" for none.
func binaries(folder string) map[string]string {
	found := map[string]string{}
	if folder == "" {
		return found
	}
	for _, name := range []string{cluster.Kubecri, cluster.Controller, "kubectl-kubeslot"} {
		if path := filepath.Join(folder, name); exists(path) {
			found[name] = path
		}
	}
	return found
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// checkLogs looks for what no test waits for: data races and panics.
func checkLogs() error {
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(shared.LogPath("kube-scheduler", "")), "*.log"))
	if err != nil {
		return err
	}
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, bad := range []string{"WARNING: DATA RACE", "panic:", "Observed a panic"} {
			if i := bytes.Index(data, []byte(bad)); i >= 0 {
				return fmt.Errorf("%s has %q:\n%s", path, bad, data[i:min(len(data), i+4000)])
			}
		}
	}
	return nil
}
