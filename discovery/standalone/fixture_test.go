package standalone

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// agent is Akri's agent, as far as handlers see it.
type agent struct {
	pb.UnimplementedRegistrationServer
	registered chan *pb.RegisterDiscoveryHandlerRequest
	answer     error
	stop       func()
}

func (a *agent) RegisterDiscoveryHandler(_ context.Context, request *pb.RegisterDiscoveryHandlerRequest) (*pb.Empty, error) {
	a.registered <- request
	return &pb.Empty{}, a.answer
}

// startAgent serves registration in the directory.
func startAgent(t *testing.T, directory string, answer error) *agent {
	t.Helper()
	l, err := unixsocket.Listen(filepath.Join(directory, pb.RegistrationSocket))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{registered: make(chan *pb.RegisterDiscoveryHandlerRequest, 100), answer: answer}
	server := grpc.NewServer()
	pb.RegisterRegistrationServer(server, a)
	go server.Serve(l)
	a.stop = server.GracefulStop // answers first; the file stays, as that of a process that is killed
	t.Cleanup(server.Stop)
	return a
}

// fake is a handler made of a function.
type fake struct {
	shared   bool
	discover func(ctx context.Context, request discovery.Request, report func(discovery.Result)) error
}

func (*fake) Name() string { return "fake" }

func (f *fake) Shared() bool { return f.shared }

func (f *fake) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	return f.discover(ctx, request, report)
}

// sees returns a handler that reports the devices once.
func sees(shared bool, devices ...discovery.Device) *fake {
	return &fake{shared: shared, discover: func(ctx context.Context, _ discovery.Request, report func(discovery.Result)) error {
		report(discovery.Result{Devices: devices, Shared: shared})
		<-ctx.Done()
		return ctx.Err()
	}}
}

// program is a Serve that runs.
type program struct {
	ended chan error
	stop  context.CancelFunc
}

func startProgram(t *testing.T, handler discovery.Handler, options Options) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{ended: make(chan error, 1), stop: cancel}
	var running sync.WaitGroup
	running.Go(func() { p.ended <- Serve(ctx, handler, options) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

// discover opens a stream to the handler that registered.
func discover(t *testing.T, registered *pb.RegisterDiscoveryHandlerRequest, details string) (stream grpc.ServerStreamingClient[pb.DiscoverResponse], cancel context.CancelFunc) {
	t.Helper()
	target := "unix:" + registered.GetEndpoint()
	if registered.GetEndpointType() == pb.RegisterDiscoveryHandlerRequest_NETWORK {
		target = "passthrough:///" + registered.GetEndpoint()[len("http://"):]
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	stream, err = pb.NewDiscoveryHandlerClient(conn).Discover(ctx, &pb.DiscoverRequest{
		DiscoveryDetails:    details,
		DiscoveryProperties: map[string]*pb.ByteData{"set": {Vec: []byte("v")}, "unset": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream, cancel
}

func receive(t *testing.T, stream grpc.ServerStreamingClient[pb.DiscoverResponse]) *pb.DiscoverResponse {
	t.Helper()
	response, err := stream.Recv()
	if err != nil {
		t.Fatalf("waited for devices: %v", err)
	}
	return response
}
