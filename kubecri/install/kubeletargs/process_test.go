package kubeletargs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseArguments(t *testing.T) {
	for args, want := range map[string]Arguments{
		"--config=/c --config-dir /d --kubeconfig=/k":                     {Config: "/c", ConfigDir: "/d", Kubeconfig: "/k"},
		"--container-runtime-endpoint=/a --container_runtime_endpoint /b": {RuntimeEndpoint: "/b"},
		"--node-ip --config --hostname-override=n":                        {HostnameOverride: "n"}, // --config is node-ip's value
		"--fail-swap-on --config=/c -- --config=/d":                       {Config: "/c"},
		"--config": {},
	} {
		if diff := cmp.Diff(want, ParseArguments(strings.Fields(args))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

// process writes what /proc has of a process that began so long after boot.
func process(t *testing.T, proc string, pid int, after time.Duration, args ...string) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	write(t, filepath.Join(dir, "cmdline"), strings.Join(args, "\x00")+"\x00")
	write(t, filepath.Join(dir, "stat"), fmt.Sprintf("%d (a) b) S 1%s %d%s", pid, strings.Repeat(" 0", 17),
		after/(10*time.Millisecond),
		strings.Repeat(" 0", 30)))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRunning(t *testing.T) {
	proc := t.TempDir()
	write(t, filepath.Join(proc, "stat"), "cpu 1 2 3 4 5 6 7 8 9 10\nbtime 1000000\n")
	write(t, filepath.Join(proc, "self/cmdline"), "kubelet\x00")
	process(t, proc, 1, 0, "/sbin/init")
	process(t, proc, 20, 90*time.Second, "/usr/bin/kubelet", "--hostname-override=node-a", "--config=/c")
	process(t, proc, 21, time.Hour, "kubelet", "--hostname-override=Node-B")
	process(t, proc, 23, time.Hour, "vi", "kubelet")
	process(t, proc, 24, time.Hour) // a thread of the kernel
	all, err := Running(proc)
	if err != nil {
		t.Fatal(err)
	}
	want := []Process{
		{20, Arguments{HostnameOverride: "node-a", Config: "/c"}, time.Unix(1000090, 0)},
		{21, Arguments{HostnameOverride: "Node-B"}, time.Unix(1003600, 0)},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for node, pid := range map[string]int{"node-a": 20, "node-b": 21, "node-c": 0} {
		if p, found := Of(node, all); p.PID != pid || found != (pid != 0) {
			t.Errorf("%s: process %d", node, p.PID)
		}
	}
	if p, found := Of("any", all[:1]); !found || p.PID != 20 {
		t.Errorf("the only one: %v", p)
	}
}

func TestEndpoint(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/c", header)
	write(t, root+"/d/a.conf", header+"containerRuntimeEndpoint: unix:///a\n")
	for _, test := range []struct {
		args           Arguments
		endpoint, from string
	}{
		{Arguments{}, DefaultEndpoint, "default"},
		{Arguments{Config: "/c"}, DefaultEndpoint, "default"},
		{Arguments{Config: "/c", ConfigDir: "/d"}, "unix:///a", "/d/a.conf"},
		{Arguments{ConfigDir: "/d", RuntimeEndpoint: "/f"}, "/f", "--container-runtime-endpoint"},
	} {
		configuration, err := test.args.Configuration(root)
		endpoint, from := configuration.Endpoint()
		if err != nil || endpoint != test.endpoint || !strings.Contains(from, test.from) || strings.Contains(from, root) {
			t.Errorf("%+v: %s from %s, %v", test.args, endpoint, from, err)
		}
	}
	if _, err := (Arguments{Config: "/none"}).Configuration(root); err == nil {
		t.Error("a file that is not there")
	}
}

func TestHealthz(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "127.0.0.1:10248",
		"healthzPort: 0\n":              "",
		"healthzPort: 1234\n":           "127.0.0.1:1234",
		"healthzBindAddress: 0.0.0.0\n": "127.0.0.1:10248",
		"healthzBindAddress: fd00::1\n": "[fd00::1]:10248",
	} {
		file := filepath.Join(t.TempDir(), "c")
		write(t, file, header+text)
		if got, err := (Arguments{Config: file}).Configuration(""); got.Healthz != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", text, got.Healthz, err, want)
		}
	}
}

// A file that was changed after its kubelet began is one that the kubelet has not read.
func TestChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c")
	write(t, file, header)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]string{time.Second: "", -time.Second: "", -time.Minute: file} {
		p := Process{os.Getpid(), Arguments{Config: file}, info.ModTime().Add(after)}
		if got, err := p.Changed(); got != want || err != nil {
			t.Errorf("started %s after the change: %q, %v, want %q", after, got, err, want)
		}
	}
}
