package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// MaxMessageBytes is how long a message from a plugin may be: thousands of devices.
	MaxMessageBytes = 1 << 20
	// MaxFitBytes is the same for the answer of Fit, which has a verdict for each of many nodes.
	MaxFitBytes = 4 << 20
	// maxInfoBytes is the same for what a plugin says of itself.
	maxInfoBytes = 64 << 10
	// maxHeaderBytes is how long the headers of an answer may be: errors' texts are in them.
	maxHeaderBytes = 16 << 10
	// windowBytes is how much a stream, and a connection, may send before it is read. That it is set
	// keeps gRPC from measuring by HTTP/2 pings.
	windowBytes = 256 << 10
)

// dial connects to the socket, of which nobody but root and this process's user may be the server.
func dial(ctx context.Context, path string) (*grpc.ClientConn, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such socket: is the plugin running?")
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket: // a link could lead to any socket of the node
		return nil, fmt.Errorf("it is no socket (%s)", info.Mode())
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := trust(sys.Uid); err != nil {
			return nil, fmt.Errorf("the socket belongs to %w", err)
		}
	}
	peer, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	uid, err := listener(peer)
	if err == nil {
		err = trust(uid)
	}
	if err != nil {
		peer.Close()
		return nil, fmt.Errorf("the process that listens belongs to %w", err)
	}
	conn, err := over(peer)
	if err != nil {
		peer.Close()
		return nil, err
	}
	if err := greet(ctx, conn); err != nil {
		conn.Close()
		peer.Close()
		return nil, err
	}
	return conn, nil
}

// greet waits until the server speaks HTTP/2.
func greet(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("its server closes the connection, or speaks no HTTP/2")
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return fmt.Errorf("its server does not begin to speak HTTP/2: %w", ctx.Err())
			}
		}
	}
}

// listener returns the user of the process that listens at the other end.
func listener(conn net.Conn) (uid uint32, err error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}

// trust refuses users that are neither root nor this process's: what a plugin says decides who gets
// which device, and what containers see of the node. A folder such as an emptyDir is open to all.
func trust(uid uint32) error {
	if uid == 0 || int(uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("user %d, and neither to root nor to this process's user %d: run the plugin as one of the two",
		uid, os.Geteuid())
}

// over returns a client on the connection, which is used once: it does not connect again.
func over(peer net.Conn) (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the plugin closed the connection")
			}
			return peer, nil
		}),
		grpc.WithAuthority("localhost"), // a path would be none, and some servers check it
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0), // a plugin that is not called stays connected
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes)),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithMaxHeaderListSize(maxHeaderBytes))
}
