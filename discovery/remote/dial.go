package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// connectTimeout is how long a handler may take until it speaks HTTP/2.
	connectTimeout = 10 * time.Second

	// windowBytes is the stream's and the connection's flow control window. That it is
	// set keeps gRPC from measuring by HTTP/2 pings, of which servers take few.
	windowBytes = 256 << 10

	// bufferBytes are the read and write buffers of each of many quiet connections.
	bufferBytes = 4 << 10

	maxHeaderBytes = 64 << 10
)

// tcpKeepalive finds out within a minute that a node or a pod is gone. It is TCP's:
// gRPC's servers end connections on which HTTP/2 pings come more often than every
// five minutes.
var tcpKeepalive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}

// connection is one to a handler.
type connection struct {
	*grpc.ClientConn
	meter atomic.Pointer[meter]
}

// dial returns a connection to the target over peer, which is used once.
func dial(to target, peer net.Conn, bounds *bounds) (*connection, error) {
	secured, err := to.transport()
	if err != nil {
		return nil, err
	}
	c := &connection{}
	c.ClientConn, err = grpc.NewClient("passthrough:///handler",
		grpc.WithTransportCredentials(metered{secured, func(conn net.Conn) net.Conn {
			m := bounds.meter(conn)
			c.meter.Store(m)
			return m
		}}),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return peer, nil // which is closed when gRPC connects again
		}),
		grpc.WithAuthority(to.Authority),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: to.Timeout}),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithMaxHeaderListSize(maxHeaderBytes))
	return c, err
}

// transport is how the connection is secured.
func (t target) transport() (credentials.TransportCredentials, error) {
	if !t.TLS {
		return insecure.NewCredentials(), nil
	}
	if len(t.CABundle) == 0 {
		return nil, errors.New("it serves TLS, and the Configuration has no spec.handlerCABundle to know it by")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(t.CABundle) {
		return nil, errors.New("spec.handlerCABundle of the Configuration has no certificate in PEM")
	}
	return credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), nil
}

// authority is the :authority of requests. A path would be none, and servers that
// check it, such as tonic's, refuse it.
func (a address) authority() string {
	if a.network == "unix" {
		return "localhost"
	}
	return a.dial
}

func connect(ctx context.Context, to address) (net.Conn, error) {
	if to.network == "unix" {
		// A link could lead to any socket of the node.
		info, err := os.Lstat(to.dial)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, errors.New("there is no such socket: is the handler running, and is this directory mounted into it?")
		case err != nil:
			return nil, err
		case info.Mode().Type() != fs.ModeSocket:
			return nil, fmt.Errorf("%s is no socket (%s)", to.dial, info.Mode())
		}
	}
	dialer := net.Dialer{KeepAliveConfig: tcpKeepalive}
	return dialer.DialContext(ctx, to.network, to.dial)
}
