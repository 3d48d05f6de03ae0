package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/docs"
)

// These tests bring real clusters up. They need root, and minutes for the first
// build, so they run only on request: KUBESLOT_E2E=1.
func realCluster(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up clusters to test the bring-up: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" || os.Geteuid() != 0 {
		t.Skip("needs root and KUBESLOT_E2E=1")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// stock is a cluster of upstream's programs alone, gone when the test ends.
func stock(t *testing.T, name string, nodes ...string) Config {
	t.Helper()
	cfg := Config{Name: name, Nodes: nodes, Stock: true, Out: t.Output()}
	t.Cleanup(func() { takeAway(t, cfg) })
	takeAway(t, cfg)
	return cfg
}

func takeAway(t *testing.T, cfg Config) {
	t.Helper()
	if err := Down(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	left, err := Leftovers(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Fatalf("left behind by down:\n%s", strings.Join(left, "\n"))
	}
}

// patience is how long anything may take on a busy machine.
const patience = 5 * time.Minute

func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func runPod(t *testing.T, c *Cluster, name, node string) {
	t.Helper()
	overrides := fmt.Sprintf(`{"spec":{"nodeSelector":{"kubernetes.io/hostname":%q}}}`, node)
	kubectl(t, c, "run", name, "--image="+AppImage, "--image-pull-policy=Never", "--env=GREETING=hello", "--overrides="+overrides)
	kubectl(t, c, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
}

func TestTwoClustersLiveAndDieApart(t *testing.T) {
	ctx := realCluster(t)
	configs := []Config{stock(t, "self-a", "node-a", "node-b"), stock(t, "self-b", "node-a")}
	clusters := make([]*Cluster, len(configs))
	var wg sync.WaitGroup
	for i, cfg := range configs {
		wg.Go(func() {
			var err error
			if clusters[i], err = Up(ctx, cfg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	a, b := clusters[0], clusters[1]

	if _, err := Up(ctx, configs[0]); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("up of a cluster that is up: %v, want to be told of down", err)
	}
	attached, err := Attach(Config{Name: "self-a"})
	if err != nil {
		t.Fatal(err)
	}
	var status bytes.Buffer
	if err := attached.Status(ctx, &status); err != nil || strings.Count(status.String(), "yes") != 11 {
		t.Errorf("status of 9 processes and 2 nodes (error %v):\n%s", err, &status)
	}

	for _, node := range a.Nodes() {
		runPod(t, a, "on-"+node.Name, node.Name)
	}
	runPod(t, b, "on-node-a", "node-a")
	if logs := kubectl(t, a, "logs", "on-node-b"); !strings.Contains(logs, "app running on on-node-b") {
		t.Errorf("kubectl logs: %q", logs)
	}
	for _, pod := range []string{"on-node-a", "on-node-b"} {
		if env := kubectl(t, a, "exec", pod, "--", "/app", "env"); !strings.Contains(env, "GREETING=hello\n") {
			t.Errorf("kubectl exec %s: %q", pod, env)
		}
	}
	podOfREADME(t, a)
	writes := auditedWrites(t, a)
	for _, want := range []string{
		"kubeslot:admin create pods/",
		"system:kube-scheduler create pods/binding",
		"system:node:node-b patch pods/status",
	} {
		if !slices.Contains(writes, want) {
			t.Errorf("audit log has no %q", want)
		}
	}

	t.Run("directories", func(t *testing.T) { directoriesOfTheirOwn(t, a) })
	t.Run("devices", func(t *testing.T) { devicesOfOneNode(t, a) })
	t.Run("machine", func(t *testing.T) { machineIsReachedByMulticast(t, a) })
	t.Run("partition", func(t *testing.T) { partitionAndHeal(t, a) })
	t.Run("restarts", func(t *testing.T) { restartEverything(t, a) })

	// Hard ends of the things that clean up after others.
	for _, component := range []string{Containerd, Kubelet} {
		if err := a.Kill(component, "node-a", syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if err := a.Kill(Containerd, "node-b", syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(a.layout.procs()); err != nil {
		t.Error(err)
	}
	takeAway(t, configs[0])
	takeAway(t, configs[0])
	if _, err := os.Stat(a.LogPath(Kubelet, "node-a")); err != nil {
		t.Errorf("logs do not outlive down: %v", err)
	}
	if logs := kubectl(t, b, "exec", "on-node-a", "--", "/app", "env"); !strings.Contains(logs, "GREETING=hello\n") {
		t.Errorf("the other cluster suffered: %q", logs)
	}
}

// auditedWrites lists "user verb resource/subresource" of the audit log.
func auditedWrites(t *testing.T, c *Cluster) []string {
	t.Helper()
	data, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	var writes []string
	for line := range bytes.Lines(data) {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("audit log: %v: %s", err, line)
		}
		writes = append(writes, fmt.Sprintf("%s %s %s/%s", event.User.Username, event.Verb, event.ObjectRef.Resource, event.ObjectRef.Subresource))
	}
	return writes
}

func partitionAndHeal(t *testing.T, c *Cluster) {
	node := c.Nodes()[0]
	reachable := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		conn, err := c.Dial(ctx, "", "tcp", node.IP+":10250")
		if err == nil {
			conn.Close()
		}
		return err
	}
	await.Within(t, patience, "the kubelet to be reachable", reachable)
	if err := c.Partition(node.Name); err != nil {
		t.Fatal(err)
	}
	if err := reachable(); err == nil {
		t.Error("kubelet is reachable through a cut cable")
	}
	if err := c.Heal(node.Name); err != nil {
		t.Fatal(err)
	}
	await.Within(t, patience, "kubelet after the partition", reachable)
}

func restartEverything(t *testing.T, c *Cluster) {
	for _, p := range c.layout.processes() {
		before, err := c.PID(p.Component, p.Node)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(p.Component, p.Node); err == nil {
			t.Fatalf("started a second %s", p)
		}
		if err := c.Kill(p.Component, p.Node, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PID(p.Component, p.Node); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s after SIGKILL: %v", p, err)
		}
		if err := c.Restart(p.Component, p.Node); err != nil {
			t.Fatal(err)
		}
		if after, err := c.PID(p.Component, p.Node); err != nil || after == before {
			t.Errorf("%s after its restart: pid %d, before %d, %v", p, after, before, err)
		}
		if err := c.AwaitServing(t.Context(), p.Component, p.Node); err != nil {
			t.Fatal(err)
		}
	}
	await.Within(t, patience, "exec into a pod that its kubelet has to find again", func() error {
		_, err := c.Kubectl(t.Context(), "exec", "on-node-a", "--", "/app", "env")
		return err
	})
	kubectl(t, c, "run", "later", "--image="+AppImage, "--image-pull-policy=Never")
	kubectl(t, c, "wait", "--for=condition=Ready", "pod/later", "--timeout=60s")
}

// Up is killed at several points of its way; down has only what it finds.
func TestDownAfterUpWasKilled(t *testing.T) {
	realCluster(t)
	cfg := stock(t, "self-c", "node-a")
	root, err := FindRepoRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "cluster")
	command, err := docs.Command(root, "docs/install.md", "go run ./test/cluster/cmd/cluster")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(command)[2:] // built, so that it can be killed
	build := exec.Command("go", "build", "-o", program, words[0])
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l := layout{filepath.Join("/var/tmp/kubeslot", cfg.Name)}
	for _, reached := range []string{
		l.netNS(switchNS),
		l.mountNS("node-a"),
		l.recordOf(Etcd, ""),
		l.recordOf(APIServer, ""),
		l.recordOf(Kubelet, "node-a"),
	} {
		t.Run(filepath.Base(reached), func(t *testing.T) {
			cmd := exec.Command(program, append(words[1:], "--stock", "--name", cfg.Name, "--nodes", "node-a")...)
			cmd.Dir = root
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() }) // before its locks stop the next
			await.Within(t, patience, "up gets as far as "+reached, func() error {
				_, err := os.Stat(reached)
				return err
			})
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if left, err := Leftovers(cfg); err != nil || len(left) == 0 {
				t.Errorf("nothing to take down (%v): the test has killed too early", err)
			}
			takeAway(t, cfg)
		})
	}
}

// A program that cannot run is what an up fails on most: the user has to see why
// without looking for a log, and nothing may stay.
func TestFailedUpExplainsItselfAndLeavesNothing(t *testing.T) {
	ctx := realCluster(t)
	cfg := stock(t, "self-d", "node-a")
	var out bytes.Buffer
	cfg.Out = &out
	broken := filepath.Join(t.TempDir(), "kube-scheduler")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho the disk is on fire\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Binaries = map[string]string{Scheduler: broken}
	_, err := Up(ctx, cfg)
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler") || !strings.Contains(err.Error(), "ended") {
		t.Errorf("error %v, want one that names the program that ended", err)
	}
	if !strings.Contains(out.String(), "the disk is on fire") {
		t.Errorf("output does not show the end of the program's log:\n%s", &out)
	}
	if left, err := Leftovers(cfg); err != nil || len(left) > 0 {
		t.Errorf("left behind (%v): %q", err, left)
	}
}
