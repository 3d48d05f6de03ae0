package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/serve"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// maxMessageBytes is how long a request may be, with its properties: as long as the
	// agent takes a response to be.
	maxMessageBytes = 16 << 20
	// maxStreams are served at once on one connection; the next waits.
	maxStreams = 256
	// maxConnections are the most at once, and maxPerAddress those of one address. An agent
	// has one for each Configuration.
	maxConnections = 1024
	maxPerAddress  = 512
	// idleTimeout ends connections without a stream; agents close theirs with it.
	idleTimeout    = 5 * time.Minute
	maxHeaderBytes = 64 << 10
)

// Serve serves the handler and keeps it registered with the agent until ctx ends, and
// returns nil then. An error says why the handler cannot be reached any more: an
// address that is taken, or a socket that somebody removed.
func Serve(ctx context.Context, handler discovery.Handler, options Options) error {
	sharer, ok := handler.(discovery.Sharer)
	if !ok {
		return fmt.Errorf("discovery handler %q does not implement discovery.Sharer: the agent asks at registration whether its devices are shared", handler.Name())
	}
	at, err := listen(ctx, handler.Name(), options)
	if err != nil {
		if ctx.Err() != nil {
			return nil // while it waited
		}
		return err
	}
	logger := klog.FromContext(ctx).WithValues("handler", handler.Name(), "endpoint", at.endpoint)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	r := &registrar{
		agent:   filepath.Join(options.Directory, pb.RegistrationSocket),
		request: &pb.RegisterDiscoveryHandlerRequest{Name: handler.Name(), Endpoint: at.endpoint, EndpointType: at.kind, Shared: sharer.Shared()},
		lost:    wake.New(),
		present: at.present,
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(serve.HandshakeTimeout), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}))
	pb.RegisterDiscoveryHandlerServer(server, &service{handler: sharer, logger: logger, dropped: r.lost.Send})

	var workers sync.WaitGroup
	served := make(chan error, 1)
	bounded := serve.Bounded(ctx, at.listener, serve.Bounds{Server: "discovery", Connections: maxConnections, PerAddress: at.maxConnections, Greeting: serve.HTTP2Greeting})
	workers.Go(func() { served <- server.Serve(bounded) })
	registered := make(chan error, 1)
	workers.Go(func() { registered <- r.run(ctx) })
	logger.Info("Serving")

	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", at.endpoint, err)
	case err = <-registered:
	}
	stopped := ctx.Err() != nil
	cancel()
	at.remove()   // while it is served: see Listener.Remove
	server.Stop() // ends all streams
	workers.Wait()
	if stopped {
		return nil
	}
	return err
}

// address is where a handler serves, and what the agent is told of it.
type address struct {
	listener net.Listener
	endpoint string
	kind     pb.RegisterDiscoveryHandlerRequest_EndpointType
	// maxConnections are those of one client's address; 0 for a Unix socket's.
	maxConnections int
	// present returns an error when the agent cannot find the handler here any more.
	present func() error
	remove  func()
}

func listen(ctx context.Context, name string, options Options) (*address, error) {
	if options.IP != "" {
		return listenTCP(options)
	}
	return listenUnix(ctx, name, options.Directory)
}

func listenTCP(options Options) (*address, error) {
	ip, err := netip.ParseAddr(options.IP)
	if err != nil {
		return nil, fmt.Errorf("--pod-ip (POD_IP) %q is not an address: %w", options.IP, err)
	}
	hostPort := net.JoinHostPort(ip.String(), strconv.Itoa(options.Port))
	l, err := net.Listen("tcp", hostPort) // with keepalive: an agent that is gone without a word is noticed
	if err != nil {
		return nil, err
	}
	return &address{
		listener: l,
		endpoint: "http://" + l.Addr().String(), // as Akri's handlers have it
		kind:     pb.RegisterDiscoveryHandlerRequest_NETWORK,

		maxConnections: maxPerAddress,
		present:        func() error { return nil },
		remove:         func() {},
	}, nil
}

// listenUnix serves <directory>/<name>.sock. It waits while another process serves
// it: two that take the path from each other in turn would lose devices each time.
func listenUnix(ctx context.Context, name, directory string) (*address, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("the handler's name %q cannot be that of a socket", name)
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(directory, name+".sock")
	for told := false; ; {
		l, err := unixsocket.Listen(path)
		if err == nil {
			return &address{listener: l, endpoint: path, kind: pb.RegisterDiscoveryHandlerRequest_UDS,
				present: l.Present, remove: l.Remove}, nil
		}
		if !errors.Is(err, unixsocket.ErrServed) {
			return nil, err
		}
		if !told {
			told = true
			klog.FromContext(ctx).Info("Waiting", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookInterval):
		}
	}
}
