package remote

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/discovery"
)

// Worker is a process that has a Runner.
type Worker interface {
	// Connect returns a connection on which the Runner serves: a handler of its own, or if peer is not
	// nil the registered one at its other end. peer is closed by the caller, when ctx ends. If the
	// worker is gone, errors of Connect and of the connection wrap ErrNoWorker, or are io.EOF.
	Connect(ctx context.Context, peer net.Conn) (net.Conn, error)
}

// ErrNoWorker is wrapped by errors of a Worker that is not there.
var ErrNoWorker = errors.New("the discovery worker does not run")

// thisProcess is the Worker of a Server that has no other.
type thisProcess struct{ *Runner }

// Connect implements Worker.
func (w thisProcess) Connect(ctx context.Context, peer net.Conn) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go w.Serve(ctx, theirs, peer)
	return ours, nil
}

// InWorker returns a Handler that has the Server's Worker run the one of this name.
func (s *Server) InWorker(handler discovery.Sharer) discovery.Handler {
	return inWorker{handler, s}
}

// inWorker is a handler that the worker has in it.
type inWorker struct {
	discovery.Sharer
	server *Server
}

// Discover implements discovery.Handler.
func (h inWorker) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := h.server.ask(ctx, nil, question{Handler: h.Name()}, request)
	if err == nil {
		err = p.follow(request.Warn, report, h.Shared(), nil, nil)
	}
	s, ofHandler := status.FromError(err)
	switch {
	case !ofHandler:
		return err
	case s.Code() == codes.InvalidArgument:
		return discovery.Invalidf("%s", s.Message())
	}
	return errors.New(s.Message())
}
