package remote

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/serve"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// lookInterval is how often the socket is looked at: without it, handlers that
	// start find no agent.
	lookInterval = 10 * time.Second

	maxRegistrationBytes   = 64 << 10
	maxRegistrationHeaders = 16 << 10

	// MaxConnections are the most at once. A handler has one while it registers.
	MaxConnections = 64
)

// Run takes registrations on the socket, and makes it anew when somebody removes it,
// until ctx ends. What keeps it from doing so is logged, and tried again: built-in
// handlers need no socket.
func (s *Server) Run(ctx context.Context) {
	path := filepath.Join(s.config.Directory, pb.RegistrationSocket)
	logger := klog.FromContext(ctx).WithValues("socket", path)
	told := ""
	for ctx.Err() == nil {
		l, err := unixsocket.Listen(path)
		if errors.Is(err, unixsocket.ErrServed) {
			err = fmt.Errorf("%w: is Akri's agent on this node?", err)
		}
		if err == nil {
			logger.Info("Taking registrations of discovery handlers")
			told = ""
			err = s.serve(ctx, l, logger)
		}
		if err == nil || ctx.Err() != nil {
			continue // the socket was removed: make it at once
		}
		if told != err.Error() {
			told = err.Error()
			logger.Error(err, "Cannot take registrations of discovery handlers", "retryAfter", s.lookInterval)
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.lookInterval):
		}
	}
}

// serve serves the socket until ctx ends or the path is not the socket's any more.
func (s *Server) serve(ctx context.Context, l *unixsocket.Listener, logger klog.Logger) error {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRegistrationBytes),
		grpc.MaxConcurrentStreams(16),
		grpc.MaxHeaderListSize(maxRegistrationHeaders),
		grpc.ConnectionTimeout(serve.HandshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}))
	pb.RegisterRegistrationServer(server, &registration{
		server: s, logger: logger, refusals: rate.Sometimes{First: 10, Interval: 10 * time.Second}})
	served := make(chan error, 1)
	bounded := serve.Bounded(klog.NewContext(ctx, logger), l,
		serve.Bounds{Server: "registration", Connections: MaxConnections, Greeting: serve.HTTP2Greeting, Dropped: s.config.Dropped})
	go func() { served <- server.Serve(bounded) }()
	look := time.NewTicker(s.lookInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			l.Remove() // handlers that look see that there is no agent
			server.Stop()
			<-served
			return nil
		case err := <-served:
			server.Stop()
			return fmt.Errorf("serve: %w", err)
		case <-look.C:
			err := l.Present()
			if err == nil {
				continue
			}
			logger.Info("Making the socket again", "reason", err.Error())
			server.Stop()
			<-served
			return nil
		}
	}
}

// registration is the protocol's Registration.
type registration struct {
	pb.UnimplementedRegistrationServer
	server   *Server
	logger   klog.Logger
	refusals rate.Sometimes // of those that are logged
}

// RegisterDiscoveryHandler implements the protocol. An error ends Akri's handlers, so
// only what can never work is one.
func (r *registration) RegisterDiscoveryHandler(_ context.Context, request *pb.RegisterDiscoveryHandlerRequest) (*pb.Empty, error) {
	if err := r.server.register(r.logger, request); err != nil {
		r.refusals.Do(func() { r.logger.Error(err, "Refused a discovery handler's registration") })
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &pb.Empty{}, nil
}
