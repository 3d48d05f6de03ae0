package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// serve serves the plugin in the folder until stop, which returns what Serve returned, and connects to the
// socket.
func serve(t *testing.T, p Plugin, folder, socket string) (conn *grpc.ClientConn, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, folder) }()
	stop = func() error { cancel(); return <-served }
	t.Cleanup(cancel)
	conn, err := grpc.NewClient("unix:"+filepath.Join(folder, socket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	info, err := registration.NewRegistrationClient(conn).GetInfo(timeout(t), &registration.GetInfoRequest{},
		grpc.WaitForReady(true))
	if err != nil || info.GetName() != p.Name || info.GetHalf() != p.Half || info.GetVersion() != p.Version ||
		len(info.GetSupportedVersions()) != 1 {
		t.Fatal(info, err)
	}
	return conn, stop
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

func sockets(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A socket that a killed process left is replaced, that of a process that serves stays, and each process removes
// its own.
func TestSockets(t *testing.T) {
	folder := t.TempDir()
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(folder, "moody.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	p := Device(&moody{}, time.Minute)
	p.Version = "v1"
	_, stop := serve(t, p, folder, "moody.sock")
	if info, err := os.Stat(filepath.Join(folder, "moody.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	p.Version = "v2"
	_, stopUpdate := serve(t, p, folder, "moody-2.sock")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := sockets(t, folder); len(got) != 1 || got[0] != "moody-2.sock" {
		t.Error("after the first has ended:", got)
	}
	if err := stopUpdate(); err != nil {
		t.Error(err)
	}
	if got := sockets(t, folder); len(got) != 0 {
		t.Error("after both have ended:", got)
	}
	if err := (Plugin{Name: "moody"}).Serve(timeout(t), folder); err == nil {
		t.Error("served without a half")
	}
}

// A call in flight is answered, streams end, and the socket is removed.
func TestEnd(t *testing.T) {
	folder, m := t.TempDir(), &moody{called: make(chan struct{}), release: make(chan struct{})}
	conn, stop := serve(t, Device(m, time.Minute), folder, "moody.sock")
	client := pb.NewDeviceClient(conn)
	if _, err := client.Start(timeout(t), &pb.DeviceStartRequest{}); err != nil {
		t.Fatal(err)
	}
	watch, err := client.Watch(timeout(t), &pb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	answered, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.Allocate(timeout(t), allocation("slow"))
		answered <- err
	}()
	<-m.called
	go func() { ended <- stop() }()
	await.That(t, "the socket to be gone", func() bool { return len(sockets(t, folder)) == 0 })
	close(m.release)
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Error(err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Error("the stream ends with", err)
	}
}
