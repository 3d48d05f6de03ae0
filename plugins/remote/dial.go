package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
)

const (
	// MaxMessageBytes is how long a message from a plugin may be: thousands of devices, or the verdicts
	// on 64 nodes with 16 KiB each. See also maxParts.
	MaxMessageBytes = 1 << 20
	// maxInfoBytes is the same for what a plugin says of itself.
	maxInfoBytes = 64 << 10
	// maxSentBytes is how long a message to a plugin may be: what gRPC's servers take, unless they say otherwise.
	maxSentBytes = 4 << 20
	// maxHeaderBytes is how long the headers of an answer may be: errors' texts are in them.
	maxHeaderBytes = 16 << 10
	// windowBytes is how much a stream, and a connection, may send before it is read. That it is set
	// keeps gRPC from measuring by HTTP/2 pings.
	windowBytes = 256 << 10
)

// Dial connects to the socket, of which nobody but root and this process's user may be the server.
func Dial(ctx context.Context, path string) (*grpc.ClientConn, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such socket: is the plugin running?")
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket: // a link could lead to any socket of the node
		return nil, fmt.Errorf("it is no socket (%s)", info.Mode())
	}
	if err := trust(info.Sys().(*syscall.Stat_t).Uid); err != nil {
		return nil, fmt.Errorf("the socket belongs to %w", err)
	}
	peer, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := trustListener(peer.(*net.UnixConn)); err != nil {
		peer.Close()
		return nil, fmt.Errorf("the process that listens belongs to %w", err)
	}
	return client(ctx, peer)
}

// trustListener is trust for the user of the process that listens at the other end.
func trustListener(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return err
	}
	return trust(peer.Uid)
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

// client returns a client on the connection once the server speaks HTTP/2. It does not connect again.
func client(ctx context.Context, peer net.Conn) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return peer, nil // which is closed when gRPC connects again
		}),
		grpc.WithAuthority("localhost"), // a path would be none, and some servers check it
		grpc.WithIdleTimeout(0),         // a plugin that is not called stays connected
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(maxSentBytes),
			grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithMaxHeaderListSize(maxHeaderBytes))
	if err != nil {
		peer.Close()
		return nil, err
	}
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.TransientFailure || !conn.WaitForStateChange(ctx, state) {
			conn.Close()
			peer.Close()
			return nil, errors.New("its server closes the connection, or does not speak HTTP/2")
		}
	}
	return conn, nil
}
