package cleanup

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// socketAt leaves a socket; one that nobody listens at when it is closed.
func socketAt(t *testing.T, path string, alive bool) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if !alive {
		l.Close()
		return
	}
	t.Cleanup(func() { l.Close() })
}

// tree lists all that is beneath root.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if path != root {
			all = append(all, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestFiles(t *testing.T) {
	root, err := os.MkdirTemp("", "c") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	touch(t, root+"/run/cdi/slots.kubeslot.io-claim-u1.json", root+"/run/cdi/.slots.kubeslot.io-claim-u1.json.tmp")
	touch(t, root+"/run/cdi/kubeslot-cam-8120fe.json", root+"/run/cdi/.kubeslot-cam-8120fe.json.tmp",
		root+"/run/cdi/nvidia.json", root+"/run/cdi/kubeslot.yaml",
		root+"/var/lib/kubecri/checkpoint.json", root+"/var/lib/akri/notes", root+"/etc/kept",
		root+"/run/kubecri/kubecri.sock.lock")
	socketAt(t, root+"/var/lib/akri/agent-registration.sock", false)
	socketAt(t, root+"/var/lib/akri/mine.sock", true)
	socketAt(t, root+"/run/kubecri/kubecri.sock", false)
	socketAt(t, root+"/k/plugins/slots.kubeslot.io/dra.sock", false)
	socketAt(t, root+"/k/plugins_registry/slots.kubeslot.io-reg.sock", false)
	socketAt(t, root+"/k/plugins_registry/gpu.example.com-reg.sock", false)
	socketAt(t, root+"/k/device-plugins/kubeslot-akri.sh-cam.sock", false)
	socketAt(t, root+"/k/device-plugins/kubelet.sock", true)
	for _, dir := range []string{"/run/udev", "/run/nri"} {
		if err := os.Mkdir(root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	touch(t, root+"/run/nri/nri.conf")
	if err := os.Symlink("/run", root+"/var/run"); err != nil { // as on hosts
		t.Fatal(err)
	}
	paths := Paths{Root: root, StateDir: "/var/lib/kubecri", CDIDir: "/var/run/cdi", HandlersDir: "/var/lib/akri",
		Listen:     "/run/kubecri/kubecri.sock",
		KubeletDir: "/k",
		Empty:      []string{"/run/udev", "/var/run/nri", "/run/none"}}
	removed, stays, err := Files(paths)
	if err != nil || len(stays) > 0 {
		t.Fatalf("%v, stays %q", err, stays)
	}
	want := []string{"/var/run/cdi/.kubeslot-cam-8120fe.json.tmp", "/var/run/cdi/.slots.kubeslot.io-claim-u1.json.tmp",
		"/var/run/cdi/kubeslot-cam-8120fe.json", "/var/run/cdi/slots.kubeslot.io-claim-u1.json",
		"/var/lib/akri/agent-registration.sock",
		"/k/plugins/slots.kubeslot.io/dra.sock", "/k/plugins/slots.kubeslot.io",
		"/k/plugins_registry/slots.kubeslot.io-reg.sock", "/k/device-plugins/kubeslot-akri.sh-cam.sock",
		"/run/kubecri/kubecri.sock", "/run/kubecri/kubecri.sock.lock", "/run/kubecri",
		"/var/lib/kubecri/checkpoint.json", "/var/lib/kubecri", "/run/udev"}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	left := []string{"/etc", "/etc/kept", "/k", "/k/device-plugins", "/k/device-plugins/kubelet.sock", "/k/plugins",
		"/k/plugins_registry", "/k/plugins_registry/gpu.example.com-reg.sock",
		"/run", "/run/cdi", "/run/cdi/kubeslot.yaml", "/run/cdi/nvidia.json", "/run/nri", "/run/nri/nri.conf",
		"/var", "/var/lib", "/var/lib/akri", "/var/lib/akri/mine.sock", "/var/lib/akri/notes", "/var/run"}
	if diff := cmp.Diff(left, tree(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if again, _, err := Files(paths); len(again) > 0 || err != nil {
		t.Errorf("again: %q, %v", again, err)
	}
}

// What kubecri did not write in its state directory stays, and is named, and so does what was there before it.
func TestFilesOfOthersInTheStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "srv/data")
	touch(t, dir+"/theirs", dir+"/sub/restored", dir+"/notes.json", dir+"/.theirs.tmp", dir+"/checkpoint.json",
		dir+"/.checkpoint.json.tmp", dir+"/restored", dir+"/resource-version")
	removed, stays, err := Files(Paths{StateDir: dir, StateBefore: []string{"theirs", "resource-version"}})
	want := []string{dir + "/.checkpoint.json.tmp", dir + "/checkpoint.json", dir + "/restored"}
	if diff := cmp.Diff(want, removed); err != nil || diff != "" {
		t.Errorf("%v, removed (-want +got):\n%s", err, diff)
	}
	want = []string{dir + "/.theirs.tmp", dir + "/notes.json", dir + "/resource-version", dir + "/sub", dir + "/theirs"}
	if diff := cmp.Diff(want, stays); diff != "" {
		t.Errorf("stays (-want +got):\n%s", diff)
	}
	for _, file := range append(want, dir+"/sub/restored") {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// Nothing is removed beneath a kubecri that runs.
func TestFilesOfOneThatRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "var/kubecri")
	touch(t, dir+"/checkpoint.json")
	first, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Hold(dir) // the next one, while the last one ends
	if err != nil {
		t.Fatal(err)
	}
	first()
	if removed, _, err := Files(Paths{StateDir: dir}); !errors.Is(err, ErrRuns) || len(removed) > 0 {
		t.Errorf("%q, %v", removed, err)
	}
	second()
	if removed, _, err := Files(Paths{StateDir: dir}); err != nil || len(removed) != 2 {
		t.Errorf("%q, %v", removed, err)
	}
}

func TestBadPaths(t *testing.T) {
	root := t.TempDir()
	if removed, _, err := Files(Paths{Root: root, StateDir: "relative/dir"}); err == nil || len(removed) > 0 {
		t.Errorf("a relative directory: %v, removed %q", err, removed)
	}
	touch(t, root+"/var/lib/kubelet/config.yaml") // as after a slip of the pen
	if removed, _, err := Files(Paths{Root: root, StateDir: "/var/lib/kubelet"}); err != nil || len(removed) > 0 {
		t.Errorf("another's directory: %v, removed %q", err, removed)
	}
}

func TestResolve(t *testing.T) {
	root := t.TempDir()
	touch(t, root+"/data/state/x")
	for link, to := range map[string]string{"/abs": "/data", "/data/up": "../data/state", "/escape": "../../../../data",
		"/loop": "/loop"} {
		if err := os.Symlink(to, root+link); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/abs/state/x": "/data/state/x", "/data/up/x": "/data/state/x",
		"/escape/state": "/data/state",
		"/none/here":    "/none/here", "/data/../abs": "/data"} {
		if got, err := resolve(root, path); err != nil || got != root+want {
			t.Errorf("%s: %s, %v, want %s", path, strings.TrimPrefix(got, root), err, want)
		}
	}
	if _, err := resolve(root, "/loop"); err == nil {
		t.Error("a loop of links")
	}
}
