package remote

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// newServer returns a server with a directory of its own, which does not listen.
func newServer(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	config := Config{Registry: discovery.NewRegistry(), Directory: t.TempDir()}
	if change != nil {
		change(&config)
	}
	s, err := NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	s.silentAfter = time.Hour
	return s
}

// register registers the socket of the name in the server's directory and returns its source.
func register(t *testing.T, s *Server, name string, shared bool) *discovery.Source {
	t.Helper()
	return registerAt(t, s, &pb.RegisterDiscoveryHandlerRequest{Name: name, Endpoint: name + ".sock", Shared: shared})
}

func registerAt(t *testing.T, s *Server, request *pb.RegisterDiscoveryHandlerRequest) *discovery.Source {
	t.Helper()
	if err := s.register(klog.Background(), request); err != nil {
		t.Fatalf("register: %v", err)
	}
	at, err := parse(request, s.config.Directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources(s, request.GetName()) {
		if source.ID == request.GetName()+"@"+at.text {
			return source
		}
	}
	t.Fatalf("%s is registered, and has no source", at.text)
	return nil
}

func sources(s *Server, name string) []*discovery.Source {
	all, _ := s.config.Registry.Sources(name)
	return all
}

// fakeHandler serves DiscoveryHandler with a function.
type fakeHandler struct {
	pb.UnimplementedDiscoveryHandlerServer
	discover func(*pb.DiscoverRequest, grpc.ServerStreamingServer[pb.DiscoverResponse]) error
}

func (h *fakeHandler) Discover(request *pb.DiscoverRequest, stream grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
	return h.discover(request, stream)
}

// serveHandler serves discover on the socket of the name in the server's directory; stop kills it.
func serveHandler(t *testing.T, s *Server, name string, discover func(*pb.DiscoverRequest, grpc.ServerStreamingServer[pb.DiscoverResponse]) error) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(s.config.Directory, name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, discover)
}

func serveOn(t *testing.T, l net.Listener, discover func(*pb.DiscoverRequest, stream) error,
	options ...grpc.ServerOption) (stop func()) {
	server := grpc.NewServer(options...)
	pb.RegisterDiscoveryHandlerServer(server, &fakeHandler{discover: discover})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return server.Stop
}

// sends returns a discover that sends the messages and then waits until it is cancelled.
func sends(messages ...*pb.DiscoverResponse) func(*pb.DiscoverRequest, grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
	return func(_ *pb.DiscoverRequest, stream grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	}
}

// running is one Discover.
type running struct {
	reports  chan discovery.Result
	warnings chan string
	done     chan error
	cancel   context.CancelFunc
}

func start(t *testing.T, source *discovery.Source, request discovery.Request) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{reports: make(chan discovery.Result, 10), warnings: make(chan string, 100), done: make(chan error, 1), cancel: cancel}
	request.Warn = func(message string) { r.warnings <- message }
	var ended sync.WaitGroup
	ended.Go(func() {
		r.done <- source.Handler.Discover(ctx, request, func(result discovery.Result) {
			select {
			case r.reports <- result:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return r
}

// client returns a client of the server's own socket.
func client(t *testing.T, s *Server) pb.RegistrationClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(s.config.Directory, pb.RegistrationSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewRegistrationClient(conn)
}
