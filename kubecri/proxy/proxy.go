// Package proxy forwards every gRPC call on a socket to a container runtime
// without decoding it: calls of today's CRI and of any future one, unary and
// streaming, with metadata, deadline, cancellation, headers, trailers and status
// as the other end made them.
//
// No service is registered. grpc-go gives calls of unknown services and of
// unknown methods to one handler, which is all there is here; so `Unimplemented`
// too comes from the runtime, and the kubelet's fallbacks keep working.
//
// An Interceptor sees the request of one unary method, may append to it, and
// sees what came of it.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // a client may compress; the hop to the runtime does not
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/serve"
)

const (
	// MaxMessageBytes is the largest message taken in either direction. The
	// kubelet and containerd allow 16 MiB: the limit that bites is to be theirs.
	MaxMessageBytes = 64 << 20

	// windowBytes lets a large ListContainers response flow without a stop at
	// HTTP/2's 64 KiB default.
	windowBytes = 4 << 20

	// bufferBytes is what a read or write takes at once, of the few connections
	// that there are: as much as a Unix socket holds.
	bufferBytes = 128 << 10

	// streamWorkers is about what a busy kubelet has in flight.
	streamWorkers = 16

	// MaxConnections are the most at once. The kubelet has two, and each tool such as crictl
	// one. Only root connects, so there is no bound for each client.
	MaxConnections = 256

	// maxStreams are the calls of one connection at once; more wait at the client. It is far
	// above what a kubelet has in flight, probes of all its containers included.
	maxStreams = 4096
)

// Config configures a Proxy.
type Config struct {
	// Runtime is the connection to the runtime, see Dial.
	Runtime grpc.ClientConnInterface
	// Images is the connection to the image service; nil when the runtime has it.
	// Calls of ImageService, of whatever CRI version, go there, all others to Runtime.
	Images grpc.ClientConnInterface
	// Interceptors by full method name, "/runtime.v1.RuntimeService/CreateContainer".
	// Only unary methods can be intercepted.
	Interceptors map[string]Interceptor
	// DrainTimeout bounds how long calls in flight may go on once Serve's context
	// is done; 0 ends them at once.
	DrainTimeout time.Duration
	// Called, if set, is told of each call that has ended, by full method name.
	Called func(method string, code codes.Code, took time.Duration)
	// Dropped, if set, is called for each connection that was closed because there were too many.
	Dropped func()
}

// Proxy is the server. It holds no state about calls beyond those in flight.
type Proxy struct {
	config   Config
	server   *grpc.Server
	draining context.Context // done when long-lived streams are to end
	drain    context.CancelFunc
}

// New makes a Proxy that does not listen yet.
func New(config Config) (*Proxy, error) {
	if config.Runtime == nil {
		return nil, errors.New("proxy: no connection to the runtime")
	}
	if config.DrainTimeout < 0 {
		return nil, fmt.Errorf("proxy: drain timeout %s is negative", config.DrainTimeout)
	}
	p := &Proxy{config: config}
	p.draining, p.drain = context.WithCancel(context.Background())
	p.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		// The runtime sets no such policy in front of a local socket either.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(serve.HandshakeTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.WaitForHandlers(true),
		// Goroutines that have grown their stacks for a call serve the next one. More
		// calls than workers get goroutines of their own.
		grpc.NumStreamWorkers(streamWorkers),
	)
	return p, nil
}

// Serve accepts on l until ctx is done, then lets the calls in flight end, for
// DrainTimeout at most. It closes l, and returns nil after a stop that ctx asked for.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	logger := klog.FromContext(ctx)
	// A kubelet's connection counts as served from its greeting on, so clients that do not
	// speak HTTP/2 end before it, however long it is idle.
	l = serve.Bounded(ctx, l, serve.Bounds{Server: "cri", Connections: MaxConnections, Greeting: serve.HTTP2Greeting, Dropped: p.config.Dropped})
	stopped := make(chan struct{})
	stopping := context.AfterFunc(ctx, func() {
		defer close(stopped)
		p.drain()
		force := time.AfterFunc(p.config.DrainTimeout, func() {
			logger.Info("Calls in flight did not end in time and are cut off", "timeout", p.config.DrainTimeout)
			p.server.Stop()
		})
		p.server.GracefulStop()
		force.Stop()
	})
	err := p.server.Serve(l)
	if stopping() { // Serve failed by itself
		p.drain()
		p.server.Stop()
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	<-stopped
	return nil
}
