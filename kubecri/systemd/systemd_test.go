package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// notifySocket stands for the service manager.
func notifySocket(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

func next(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buffer := make([]byte, 100)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

func TestNotify(t *testing.T) {
	conn := notifySocket(t)
	if err := Notify(Ready); err != nil {
		t.Fatal(err)
	}
	if got := next(t, conn); got != "READY=1" {
		t.Errorf("systemd was told %q", got)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Ready); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", "/does/not/exist")
	if err := Notify(Ready); err == nil {
		t.Error("nobody was told, and that is no error")
	}
}

func TestWatchdogIsToldOnlyWhileWell(t *testing.T) {
	conn := notifySocket(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watchdog(ctx, func(context.Context) error {
			if asked++; asked < 3 {
				return errors.New("the socket is gone")
			}
			return nil
		})
	}()
	if got := next(t, conn); got != "WATCHDOG=1" {
		t.Errorf("systemd was told %q", got)
	}
	cancel()
	<-ended
	if asked < 3 {
		t.Errorf("told after %d checks, of which the first two failed", asked)
	}
}

func TestNoWatchdog(t *testing.T) {
	notifySocket(t)
	for name, env := range map[string][2]string{"not set": {"", ""}, "of another process": {"1000", "1"}, "odd": {"soon", ""}} {
		t.Setenv("WATCHDOG_USEC", env[0])
		t.Setenv("WATCHDOG_PID", env[1])
		Watchdog(t.Context(), func(context.Context) error { t.Error(name, ": asked"); return nil })
	}
}

// TestMain is also the process that systemd starts: with LISTEN_WANT it says what
// Listener returns.
func TestMain(m *testing.M) {
	want := os.Getenv("LISTEN_WANT")
	if want == "" {
		os.Exit(m.Run())
	}
	l, err := Listener(want)
	switch {
	case err != nil:
		fmt.Println("error:", err)
	case l == nil:
		fmt.Println("none")
	default:
		fmt.Println("got", l.Addr(), os.Getenv("LISTEN_FDS"))
		l.Close()
	}
}

func TestListener(t *testing.T) {
	dir := t.TempDir()
	ours, other := filepath.Join(dir, "ours.sock"), filepath.Join(dir, "other.sock")
	var files []*os.File
	for _, path := range []string{other, ours} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	for _, test := range []struct {
		name, env, path, want string
	}{
		{"ours among others", "LISTEN_PID=$$ LISTEN_FDS=2", ours, "got " + ours},
		{"others only", "LISTEN_PID=$$ LISTEN_FDS=1", ours, "error: systemd passed the sockets " + other},
		{"for another process", "LISTEN_PID=1 LISTEN_FDS=2", ours, "none"},
		{"none", "LISTEN_FDS=", ours, "none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", test.env+` exec "$0"`, os.Args[0])
			cmd.Env = append(os.Environ(), "LISTEN_WANT="+test.path)
			cmd.ExtraFiles = files
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), test.want) {
				t.Errorf("%v, %q, want %q", err, out, test.want)
			}
			if _, err := os.Stat(ours); err != nil {
				t.Errorf("the socket file went with the process: %v", err)
			}
		})
	}
}
