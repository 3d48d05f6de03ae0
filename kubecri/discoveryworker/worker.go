// Package discoveryworker has the discovery worker: the process that has a remote.Runner, in which
// handlers run that parse what comes from a network, and which speaks to handlers that register. It
// is a child of kubecri's (Process), or a container beside kubecri's (Socket). Serve is its other end.
//
// For each Discover kubecri connects to the worker's socket. It first sends a byte, with the
// descriptor of a connection to the handler if that registered: between this and kubecri the worker
// then stands.
package discoveryworker

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/remote"
)

// Socket is a worker that listens at this path, such as a container beside kubecri's. What is there
// is the worker's to say, so its directory is to be nobody else's.
type Socket string

// Connect implements remote.Worker.
func (s Socket) Connect(_ context.Context, peer net.Conn) (net.Conn, error) {
	conn, err := connect(string(s), peer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: is the container there that is to run it?", remote.ErrNoWorker, err)
	}
	return conn, nil
}

// connect connects to the worker's socket, and passes on the peer.
func connect(path string, peer net.Conn) (net.Conn, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) // a link could lead to any socket
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	var rights []byte
	if peer != nil {
		file, err := peer.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			return nil, err
		}
		defer file.Close()
		rights = unix.UnixRights(int(file.Fd()))
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d", fd), Net: "unix"})
	if err != nil {
		return nil, err
	}
	if _, _, err = conn.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		conn.Close()
	}
	return conn, err
}
