package proxy

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial prepares the connection to the runtime's endpoint, `unix:///path` or
// `/path`. It connects when first used. While the runtime is absent a call fails
// at once with Unavailable, as on a direct connection, and a runtime that comes
// back is found within a second: trying a local socket costs next to nothing.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	path, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessageBytes),
			grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithIdleTimeout(0), // an idle node's first call is not to wait for a connection
		grpc.WithNoProxy(),
	)
}

// SocketPath returns the file of an endpoint: `unix:///path` or `/path`.
func SocketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	switch {
	case endpoint == "":
		return "", errors.New("the endpoint is empty: want unix:///path/to/socket")
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("endpoint %q: want unix:///path/to/socket", endpoint)
	}
	return filepath.Clean(path), nil
}
