package discoveryworker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/test/await"
)

// A worker in a container of its own may come late, and be another one later.
func TestAWorkerOnASocket(t *testing.T) {
	path := socketOf(t)
	handler := handlerOf(Socket(path), t.TempDir())
	away := func(d *discovering, want string) {
		t.Helper()
		err := await.Next(t, "the error", d.done)
		if !errors.Is(err, remote.ErrNoWorker) || !strings.Contains(err.Error(), want) {
			t.Errorf("Discover() = %v, want %q", err, want)
		}
	}
	away(discover(t, handler, "pid"), "is the container there")
	for range 2 {
		if err := os.WriteFile(path, nil, 0o600); err != nil { // of an earlier container
			t.Fatal(err)
		}
		stop := runs(t, func(ctx context.Context) {
			if err := serve(ctx, path, testRunner()); err != nil {
				t.Error(err)
			}
		})
		await.That(t, "the socket", func() bool {
			info, err := os.Lstat(path)
			return err == nil && info.Mode() == os.ModeSocket|0o666 // kubecri has no CAP_DAC_OVERRIDE
		})
		running := discover(t, handler, "pid")
		await.Next(t, "the report", running.reports)
		stop()
		away(running, "it has closed the connection")
		away(discover(t, handler, "pid"), "is the container there")
	}
}

// A worker that was taken over could otherwise have kubecri connect to what it may not itself.
func TestALinkIsNoSocketOfAWorker(t *testing.T) {
	directory := t.TempDir()
	other, link := filepath.Join(directory, "other.sock"), filepath.Join(directory, "worker.sock")
	l, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	if conn, err := connect(link, nil); err == nil {
		conn.Close()
		t.Error("a link was followed")
	}
	conn, err := connect(other, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
