package hostinstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/kubecri/replacefile"
)

// recorded is a service manager that writes down what it is told, and fails at one
// command. The real one is in test/hostinstall.
type recorded struct {
	commands []string
	failAt   string
}

func (r *recorded) run(_ context.Context, args ...string) (string, error) {
	command := strings.Join(args, " ")
	r.commands = append(r.commands, command)
	if command == r.failAt {
		r.failAt = ""
		return "", fmt.Errorf("systemctl %s: exit status 1", command)
	}
	return "", nil
}

func text(s string) *string { return &s }

// twoStages creates new, and changes old, in a directory.
func twoStages(t *testing.T) (dir string, p Plan) {
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	return dir, Plan{RuntimeEndpoint: containerd, Endpoint: ours, Stages: []Stage{
		{Changes: []Change{{filepath.Join(dir, "sub/new"), nil, text("content")}}, Unit: UnitName, Await: Serving,
			Commands: [][]string{{"restart", "kubecri"}}, UndoBefore: [][]string{{"disable", "kubecri"}}, UndoCommands: [][]string{{"daemon-reload"}}},
		{Changes: []Change{{filepath.Join(dir, "old"), text("before"), text("after")}}, Unit: "kubelet.service", Await: Healthy,
			Commands: [][]string{{"restart", "kubelet"}}, UndoCommands: [][]string{{"restart", "kubelet"}}, UndoAwait: Healthy},
	}}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	for _, name := range []string{"old", "sub/new"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			all = append(all, name+"="+string(data))
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return strings.Join(all, " ")
}

func TestApply(t *testing.T) {
	const done, undone = "old=after sub/new=content", "old=before"
	undoFirst := []string{"disable kubecri", "daemon-reload"}
	for name, test := range map[string]struct {
		failAt   string
		notReady string // unit and endpoint that never become ready
		commands []string
		files    string
		says     string
	}{
		"well": {commands: []string{"restart kubecri", "restart kubelet"}, files: done},
		"kubecri does not start": {failAt: "restart kubecri", files: undone, says: "exit status 1; all was undone",
			commands: slices.Concat([]string{"restart kubecri"}, undoFirst)},
		"kubecri does not serve": {notReady: UnitName + ours, files: undone, says: "kubecri.service: within 50ms: not ready",
			commands: slices.Concat([]string{"restart kubecri"}, undoFirst)},
		"the kubelet does not come back": {notReady: "kubelet.service" + ours, files: undone, says: "kubelet.service: within 50ms: not ready (journalctl -u kubelet.service says more); all was undone",
			commands: slices.Concat([]string{"restart kubecri", "restart kubelet", "restart kubelet"}, undoFirst)},
		"nor when it was undone": {notReady: "kubelet.service", files: "old=before sub/new=content", says: "and undoing it failed",
			commands: []string{"restart kubecri", "restart kubelet", "restart kubelet"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := twoStages(t)
			systemctl := &recorded{failAt: test.failAt}
			a := Applier{Systemctl: systemctl.run, Timeout: 50 * time.Millisecond, Out: io.Discard,
				Ready: func(_ context.Context, p Plan, unit string, _ Await, _ time.Time) error {
					if unit+p.Endpoint == test.notReady || unit == test.notReady {
						return errors.New("not ready")
					}
					return nil
				}}
			err := a.Apply(t.Context(), p)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
			if diff := cmp.Diff(test.commands, systemctl.commands); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			if got := contents(t, dir); got != test.files {
				t.Errorf("files %q, want %q", got, test.files)
			}
			if info, err := os.Stat(filepath.Join(dir, "old")); err != nil || info.Mode() != 0o640 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// Ctrl-C undoes what was done, too.
func TestApplyInterrupted(t *testing.T) {
	dir, p := twoStages(t)
	ctx, cancel := context.WithCancel(t.Context())
	systemctl := &recorded{}
	a := Applier{Systemctl: systemctl.run, Out: io.Discard, Ready: func(ctx context.Context, p Plan, unit string, _ Await, _ time.Time) error {
		if unit == "kubelet.service" && p.Endpoint != "" {
			cancel()
			return errors.New("not yet")
		}
		return ctx.Err()
	}}
	if err := a.Apply(ctx, p); err == nil || !strings.Contains(err.Error(), "all was undone") {
		t.Errorf("%v", err)
	}
	if got := contents(t, dir); got != "old=before" {
		t.Errorf("files %q", got)
	}
}

// Where there is no way back nothing is undone: a kubelet that was pointed at kubecri again, which is stopped,
// would have no runtime.
func TestNoWayBack(t *testing.T) {
	for name, interrupted := range map[string]bool{"a command fails": false, "Ctrl-C": true} {
		t.Run(name, func(t *testing.T) {
			dir, p := twoStages(t)
			p.Stages = append(p.Stages, Stage{Before: [][]string{{"disable", "--now", "kubecri"}}, Final: true})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			systemctl := &recorded{}
			if !interrupted {
				systemctl.failAt = "disable --now kubecri"
			}
			a := Applier{Out: io.Discard,
				Ready: func(context.Context, Plan, string, Await, time.Time) error { return nil },
				Systemctl: func(ctx context.Context, args ...string) (string, error) {
					if args[0] == "disable" && interrupted {
						cancel()
					}
					return systemctl.run(ctx, args...)
				}}
			says := "the kubelet uses " + ours + ". Run this again"
			if err := a.Apply(ctx, p); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v", err)
			}
			want := []string{"restart kubecri", "restart kubelet", "disable --now kubecri"}
			if diff := cmp.Diff(want, systemctl.commands); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			if got := contents(t, dir); got != "old=after sub/new=content" {
				t.Errorf("files %q", got)
			}
		})
	}
}

// What somebody else changed since the plan was made is not overwritten.
func TestApplyToAnotherHost(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"changed": func(dir string) error { return os.WriteFile(filepath.Join(dir, "old"), []byte("else"), 0o600) },
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, "old")) },
	} {
		dir, p := twoStages(t)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		a := Applier{Systemctl: (&recorded{}).run, Out: io.Discard, Ready: func(context.Context, Plan, string, Await, time.Time) error { return nil }}
		if err := a.Apply(t.Context(), p); err == nil || !strings.Contains(err.Error(), "changed by somebody else") {
			t.Errorf("%s: %v", name, err)
		}
		if got := contents(t, dir); strings.Contains(got, "after") {
			t.Errorf("%s: files %q", name, got)
		}
	}
}

// A host that loses power has no truncated program that the kubelet needs: the program is on
// the disk before the kubelet's files name its socket.
func TestTheProgramIsOnTheDiskBeforeTheKubeletNeedsIt(t *testing.T) {
	if !sysfstest.InNamespace(t) {
		return
	}
	if err := unix.Mount("tmpfs", filepath.Dir(Program), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	dir, p := twoStages(t)
	short := strings.NewReplacer(dir, "DIR", filepath.Dir(Program), "BIN")
	executable := filepath.Join(t.TempDir(), "executable")
	hashes := map[string]*string{"": nil}
	for _, content := range []string{"the first", "the second"} {
		if err := os.WriteFile(executable, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		hash, err := HashFile(executable)
		if err != nil {
			t.Fatal(err)
		}
		hashes[content] = &hash
	}
	for _, step := range []struct {
		name, before, after string // of the program
		failAt              string
		want                []string
	}{
		{"install", "", "the first", "", []string{
			"sync BIN/.kubecri.tmp", "rename BIN/kubecri", "sync BIN", "restart kubecri",
			"sync DIR/.old.tmp", "rename DIR/old", "sync DIR", "restart kubelet",
		}},
		{"an upgrade that fails", "the first", "the second", "restart kubecri", []string{
			"sync BIN/.kubecri.tmp", "rename BIN/kubecri", "sync BIN", "restart kubecri",
			"disable kubecri", "rename BIN/kubecri", "sync BIN", "daemon-reload",
		}},
	} {
		var calls []string
		if err := os.WriteFile(executable, []byte(step.after), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Stages[0].Changes = []Change{{Program, hashes[step.before], hashes[step.after]}}
		systemctl := &recorded{failAt: step.failAt}
		a := Applier{
			Executable: executable, Out: io.Discard,
			Disk: replacefile.Disk{Observe: func(call, path string) {
				calls = append(calls, call+" "+short.Replace(path))
			}},
			Systemctl: func(ctx context.Context, args ...string) (string, error) {
				calls = append(calls, strings.Join(args, " "))
				return systemctl.run(ctx, args...)
			},
			Ready: func(context.Context, Plan, string, Await, time.Time) error { return nil },
		}
		if err := a.Apply(t.Context(), p); (err == nil) != (step.failAt == "") {
			t.Errorf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", step.name, diff)
		}
		if data, err := os.ReadFile(Program); err != nil || string(data) != "the first" {
			t.Errorf("%s: the program is %q, %v", step.name, data, err)
		}
	}
	// A run that was killed had put the new program there, and kept the old one.
	if err := os.WriteFile(saved(Program), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Applier{Out: io.Discard}).Apply(t.Context(), Plan{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(saved(Program)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program that was replaced is left: %v", err)
	}
}

func TestParseUnit(t *testing.T) {
	// As systemd 252 prints a kubelet's of kubeadm.
	u := parseUnit(`MainPID=4711
EnvironmentFiles=/var/lib/kubelet/kubeadm-flags.env (ignore_errors=yes)
EnvironmentFiles=/etc/default/kubelet (ignore_errors=no)
LoadState=loaded
ActiveState=active
DropInPaths=/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf /etc/systemd/system/kubelet.service.d/20.conf
FragmentPath=/usr/lib/systemd/system/kubelet.service
`)
	want := unitState{loaded: true, active: true, pid: 4711, files: []string{"/usr/lib/systemd/system/kubelet.service",
		"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "/etc/systemd/system/kubelet.service.d/20.conf",
		"/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"}}
	if diff := cmp.Diff(want, u, cmp.AllowUnexported(unitState{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if u := parseUnit("MainPID=0\nLoadState=not-found\nActiveState=inactive\nDropInPaths=\nFragmentPath=\n"); u.loaded || u.active || len(u.files) > 0 {
		t.Errorf("a unit that is not there: %+v", u)
	}
}

func TestNodeReady(t *testing.T) {
	since := time.Date(2026, 11, 22, 12, 0, 0, 700e6, time.UTC)
	for name, test := range map[string]struct {
		heartbeat time.Time
		status    corev1.ConditionStatus
		says      string
	}{
		"ready in the same second": {since.Truncate(time.Second), corev1.ConditionTrue, ""},
		"ready before":             {since.Add(-2 * time.Second), corev1.ConditionTrue, "has not reported since"},
		"not ready":                {since.Add(time.Second), corev1.ConditionFalse, "is not Ready: no network"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: test.status, LastHeartbeatTime: metav1.NewTime(test.heartbeat), Message: "no network"}}}}
		if err := nodeReady(n, since); (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := nodeReady(&corev1.Node{}, since); err == nil {
		t.Error("a node that says nothing is Ready")
	}
}
