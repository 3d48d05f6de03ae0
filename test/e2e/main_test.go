// Package e2e tests Kubeslot on the real cluster of test/cluster: real API
// server, kubelets, containerd and runc, two nodes. It needs root and is skipped
// unless KUBESLOT_E2E is set.
//
// A test that touches nothing but its own namespace and its own Configurations runs
// side by side with others: it begins with t.Parallel. No other test of the package
// may have a Configuration of the same name. A test that restarts, kills or freezes
// something, or counts what is in the whole cluster, runs alone, before those. With
// -short, as `make test` runs it, of each kind of fault the quickest test is left;
// the others begin with testAll.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// The one cluster that the tests share, each in a namespace of its own.
var (
	shared *cluster.Cluster
	kube   kubernetes.Interface
	akri   versioned.Interface
)

const nodeA, nodeB = "node-a", "node-b"

func TestMain(m *testing.M) {
	if os.Getenv("KUBESLOT_E2E") == "" {
		fmt.Println("e2e tests are skipped: they bring up a cluster; run `make test-e2e` as root")
		return
	}
	flag.Parse() // for testing.Short
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	cfg := cluster.Config{Name: cmp.Or(os.Getenv("CLUSTER"), "e2e"), Nodes: []string{nodeA, nodeB}, BuildFlags: []string{"-race"}}
	if testing.Short() {
		cfg.NRI = []string{nodeB} // so that each test that uses both nodes uses both modes
	}
	if testing.Short() || os.Getenv("NORACE") != "" { // quicker to build
		cfg.BuildFlags = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	if os.Getenv("REUSE") != "" { // the cluster that a run with KEEP has left, with its binaries
		shared, err = cluster.Attach(cfg)
	} else {
		err = cluster.Down(ctx, cfg)
		if err != nil {
			return 0, fmt.Errorf("remove what an earlier run left: %w", err)
		}
		shared, err = cluster.Up(ctx, cfg)
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		if os.Getenv("KEEP") != "" {
			fmt.Printf("KEEP is set: the cluster stays. export KUBECONFIG=%s; take it away with: go run ./test/cluster/cmd/cluster down --name %s\n", shared.Kubeconfig(), cfg.Name)
			return
		}
		err = errors.Join(err, shared.Down(context.Background()))
		left, leftErr := cluster.Leftovers(cfg)
		if len(left) > 0 {
			leftErr = fmt.Errorf("the cluster left behind: %s", strings.Join(left, "; "))
		}
		err = errors.Join(err, leftErr)
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
	return code, errors.Join(checkLogs(), checkWrites(context.Background()))
}

// testAll leaves the test to `make test-all`, for what it does.
func testAll(t *testing.T, does string) {
	t.Helper()
	if testing.Short() {
		t.Skip(does + ": make test-all")
	}
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
