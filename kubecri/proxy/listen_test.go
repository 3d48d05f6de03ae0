package proxy

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
)

func TestListenTakesTheRuntimeSocketsMode(t *testing.T) {
	dir := t.TempDir()
	runtimePath := filepath.Join(dir, "runtime.sock")
	for _, test := range []struct {
		name    string
		runtime os.FileMode // 0: no runtime yet
		want    os.FileMode
	}{{"no runtime yet", 0, 0o600}, {"as the runtime", 0o660, 0o660}} {
		t.Run(test.name, func(t *testing.T) {
			if test.runtime != 0 {
				l, err := net.Listen("unix", runtimePath)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if err := os.Chmod(runtimePath, test.runtime); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "made", "kubecri.sock")
			l, err := Listen(path, runtimePath)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != test.want {
				t.Errorf("mode %v, %v, want %v", info.Mode(), err, test.want)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the socket file is left behind: %v", err)
			}
		})
	}
}

func TestListenReplacesAStaleSocketOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubecri.sock")

	// As left by a process killed with -9: the file stays, nobody serves it.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	l, err := Listen(path, "")
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}

	if _, err := Listen(path, ""); !errors.Is(err, unixsocket.ErrServed) || !strings.Contains(err.Error(), path) {
		t.Errorf("our own live socket: %v, want ErrServed naming %s", err, path)
	}
	l.Close()

	foreign, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ""); !errors.Is(err, unixsocket.ErrServed) {
		t.Errorf("a foreign live socket: %v, want ErrServed", err)
	}
	foreign.Close()

	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ""); err == nil {
		t.Error("a regular file was replaced")
	}
	if _, err := Listen(path, path); err == nil {
		t.Error("listening on the runtime's own endpoint was allowed")
	}
}

func TestSocketPath(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/a.sock": "/run/a.sock", "/run/a.sock": "/run/a.sock",
		"": "", "tcp://1.2.3.4:5": "", "run/a.sock": "", "unix://a.sock": "",
	} {
		got, err := SocketPath(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("SocketPath(%q) = %q, %v, want %q", endpoint, got, err, want)
		}
	}
}
