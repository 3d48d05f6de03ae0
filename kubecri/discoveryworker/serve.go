package discoveryworker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/remote"
)

// listenDescriptor is the socket that a child gets, after the standard descriptors.
const listenDescriptor = 3

// Serve is the worker: it confines this process and has the Runner serve until ctx ends, as a child
// of kubecri, or with a path on this socket.
func Serve(ctx context.Context, path string, runner *remote.Runner) error {
	if err := confine(path == ""); err != nil {
		return err
	}
	return serve(ctx, path, runner)
}

func serve(ctx context.Context, path string, runner *remote.Runner) error {
	l, err := listen(path)
	if err != nil {
		return fmt.Errorf("the discovery worker's socket: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		go func() {
			peer, err := receive(conn.(*net.UnixConn))
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot read what kubecri sends: is it of another version?")
				conn.Close()
				return
			}
			runner.Serve(ctx, conn, peer)
		}()
	}
}

func listen(path string) (net.Listener, error) {
	if path == "" {
		file := os.NewFile(listenDescriptor, "socket")
		defer file.Close() // the listener has a copy
		return net.FileListener(file)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // an earlier container's
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o666) // for a kubecri without CAP_DAC_OVERRIDE
}

// receive returns the peer that kubecri passes on; nil for none.
func receive(conn *net.UnixConn) (peer net.Conn, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil || n == 0 {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fds[0]), "peer")
	defer file.Close() // the connection has a copy
	return net.FileConn(file)
}
