package cluster

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/await"
)

func TestConfigIsRefusedBeforeAnythingIsMade(t *testing.T) {
	tests := []struct {
		name    string
		cfg     Config
		wantErr string // empty: accepted
	}{
		{"defaults", Config{}, ""},
		{"sockets at the limit", Config{StateDir: "/" + strings.Repeat("d", 54), Nodes: []string{"node-a"}}, ""},
		{"sockets too long", Config{StateDir: "/" + strings.Repeat("d", 55), Nodes: []string{"node-a"}}, "choose a shorter --state-dir"},
		{"upper case", Config{Name: "Default"}, "cluster name"},
		{"a path as name", Config{Name: "../x"}, "cluster name"},
		{"node named like our namespace", Config{Nodes: []string{"control"}}, "is taken"},
		{"two nodes of one name", Config{Nodes: []string{"a", "a"}}, "is taken"},
		{"blank in the path", Config{StateDir: "/tmp/a b"}, "blanks"},
		{"a kubelet of no version", Config{Versions: Versions{Kubelets: map[string]string{"node-a": "1.33"}}}, `version "1.33" of Kubernetes: can be one of [1.34 1.35 1.36], 1.37`},
		{"a kubelet of no node", Config{Versions: Versions{Kubelets: map[string]string{"node-x": "1.35"}}}, "none of the nodes"},
		{"a containerd of no version", Config{Versions: Versions{Containerds: map[string]string{"node-a": "1.7"}}}, `version "1.7" of containerd: can be one of [2.0 2.1 2.2 2.3]`},
		{"a containerd of no node", Config{Versions: Versions{Containerds: map[string]string{"node-x": "2.0"}}}, "none of the nodes"},
		{"older versions", Config{Versions: Versions{ControlPlane: "1.35", Kubelets: map[string]string{"node-a": "1.34", "node-b": "1.37"}}}, ""},
		{"hidden by the nodes' own /var/log", Config{StateDir: "/var/log/k"}, "/var/log of its own"},
		{"where other clusters are", Config{StateDir: "/var/tmp/kubeslot"}, "other clusters are in it"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.cfg.withDefaults()
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
		})
	}
}

func TestClustersOfOneNameHaveDifferentCgroups(t *testing.T) {
	a, b := layout{"/tmp/a"}.cgroup("x"), layout{"/tmp/b"}.cgroup("x")
	if a == b {
		t.Errorf("both have %s", a)
	}
	// Down of cluster "x" must not match cluster "x-y" by prefix either.
	if !strings.HasPrefix(a, "/kubeslot-x-") || len(a) != len("/kubeslot-x-")+6 {
		t.Errorf("cgroup %s, want a hash of 6 digits after the name", a)
	}
}

func TestEveryNodeReachesTheOthersPodsAndTheAPI(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	for i, m := range members(layout{"/s"}, nodes) {
		reach := func(addr netip.Addr) (via netip.Addr, ok bool) {
			for _, r := range m.routes {
				if r.to.Contains(addr) {
					return r.via, true
				}
			}
			return via, false
		}
		for n := range nodes {
			via, ok := reach(podRange(n).Addr().Next())
			if own := i == n+1; ok == own {
				t.Errorf("%s: route to the pods of node %d: %v", m.ns, n, ok)
			}
			if ok && via != nodeIP(n) {
				t.Errorf("%s: pods of node %d via %s, want %s", m.ns, n, via, nodeIP(n))
			}
		}
		if via, ok := reach(apiService); i > 0 && (!ok || via != controlIP) {
			t.Errorf("%s: the API's service via %s, %v", m.ns, via, ok)
		}
	}
}

func TestProcessIsNotTakenForAnotherWithItsPid(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, ok := identify(cmd.Process.Pid)
	if !ok || !id.alive() {
		t.Fatalf("a process that runs: %+v, %v", id, ok)
	}
	for _, other := range []identity{
		{id.PID, id.StartTicks + 1, id.Boot},
		{id.PID, id.StartTicks, "another boot"},
		{},
	} {
		if err := other.signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) || other.alive() {
			t.Errorf("%+v: signal: %v, alive: %v", other, err, other.alive())
		}
	}
	if !id.alive() {
		t.Fatal("another process's signal reached it")
	}
	if err := id.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Not waited for, so it ends as a zombie: that is not alive.
	await.That(t, "the process to end after SIGKILL", func() bool { return !id.alive() })
	_ = cmd.Wait()
}

func TestStatWithABlankInTheCommand(t *testing.T) {
	stat := "42 (a) b) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 987654 0 0"
	state, threads, ticks, err := parseStat(stat)
	if err != nil || state != 'S' || threads != 3 || ticks != 987654 {
		t.Errorf("state %c, %d threads, start %d, error %v", state, threads, ticks, err)
	}
	if _, _, _, err := parseStat("42 cut off"); err == nil {
		t.Error("no error for a line without command")
	}
}

func TestMountinfo(t *testing.T) {
	m, ok := parseMount(`36 35 98:0 /root /mnt/a\040b rw,noatime shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct`)
	if !ok || m.target != "/mnt/a b" || m.fsType != "cgroup" || !slices.Equal(m.options, []string{"rw", "cpu", "cpuacct"}) {
		t.Errorf("got %+v, %v", m, ok)
	}
	if _, ok := parseMount("36 35 98:0 / /mnt"); ok {
		t.Error("accepted a line that is cut off")
	}
}

func TestCgroupVersions(t *testing.T) {
	v1, v2 := mount{target: "/c/cpu", fsType: "cgroup"}, mount{target: "/c/unified", fsType: "cgroup2"}
	if got := cgroupsOf([]mount{v1, v2}); got.v2 || !slices.Equal(got.roots, []string{"/c/cpu"}) || len(got.all) != 2 {
		t.Errorf("hybrid machine: %+v", got)
	}
	if got := cgroupsOf([]mount{v2}); !got.v2 || !slices.Equal(got.roots, []string{"/c/unified"}) {
		t.Errorf("v2 machine: %+v", got)
	}
}

func TestSchedulerConfigKeepsAllButTheKubeconfig(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	shipped := "kind: KubeSchedulerConfiguration\nclientConnection:\n  kubeconfig: /etc/x\n  qps: 7\nprofiles:\n- schedulerName: s\n"
	if err := os.WriteFile(from, []byte(shipped), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := renderSchedulerConfig(from, to, "/k"); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind             string
		ClientConnection struct {
			Kubeconfig string
			QPS        float64
		}
		Profiles []struct{ SchedulerName string }
	}
	data, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.ClientConnection.Kubeconfig != "/k" || got.ClientConnection.QPS != 7 || got.Profiles[0].SchedulerName != "s" || got.Kind == "" {
		t.Errorf("rendered %s", data)
	}
}

func TestAwaitStopsWhenWaitingIsPointless(t *testing.T) {
	p := newProgress(io.Discard)
	dead := errors.New("the process has ended")
	err := p.await(context.Background(), "x", func() error { return dead }, func(context.Context) error { return errors.New("refused") })
	if !errors.Is(err, dead) {
		t.Errorf("error %v, want %v", err, dead)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, errors.New("too late"))
	defer cancel()
	refused := errors.New("refused")
	if err := p.await(ctx, "x", nil, func(context.Context) error { return refused }); !errors.Is(err, refused) || !strings.Contains(err.Error(), "too late") {
		t.Errorf("error %v, want what was seen last and why it ended", err)
	}
}
