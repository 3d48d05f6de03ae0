package proxy

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chain is a client, the proxy and a real gRPC server that speaks CRI.
type chain struct {
	ctx           context.Context
	conn          *grpc.ClientConn
	runtimeClient runtimeapi.RuntimeServiceClient
	imageClient   runtimeapi.ImageServiceClient
	runtime       *fakeRuntime
	runtimeSocket string
	proxy         *Proxy
	stop          context.CancelFunc
	served        chan error
}

func newChain(t *testing.T, create Interceptor) *chain {
	t.Helper()
	return newChainIn(t, t.TempDir(), create, true)
}

func newChainIn(t *testing.T, dir string, create Interceptor, up bool) *chain {
	t.Helper()
	c := &chain{runtime: &fakeRuntime{events: make(chan string)}, runtimeSocket: filepath.Join(dir, "runtime.sock"), served: make(chan error, 1)}
	if up {
		c.runtime.serve(t, c.runtimeSocket)
	}
	if create == nil {
		create = func(_ context.Context, _ []byte, forward Forward) error { _, err := forward(nil); return err }
	}
	runtimeConn, err := Dial("unix://" + c.runtimeSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtimeConn.Close() })
	c.proxy, err = New(Config{
		Runtime:      runtimeConn,
		Interceptors: map[string]Interceptor{runtimeapi.RuntimeService_CreateContainer_FullMethodName: create},
		DrainTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "kubecri.sock")
	l, err := Listen(socket, c.runtimeSocket)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.served <- c.proxy.Serve(ctx, l) }()
	if c.conn, err = Dial(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.conn.Close()
		c.stop()
		<-ended
	})
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c.runtimeClient, c.imageClient = runtimeapi.NewRuntimeServiceClient(c.conn), runtimeapi.NewImageServiceClient(c.conn)
	return c
}

// fakeRuntime is a CRI runtime that knows a few calls.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	events  chan string
	hold    chan struct{} // StopContainer waits for it
	fail    atomic.Pointer[status.Status]
	streams atomic.Int32
	slow    atomic.Int32

	mu       sync.Mutex
	md       metadata.MD
	deadline time.Duration
	create   *runtimeapi.CreateContainerRequest
}

func (f *fakeRuntime) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(32<<20), grpc.MaxSendMsgSize(32<<20))
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	runtimeapi.RegisterImageServiceServer(server, f)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "future.v1.Echo",
		Streams: []grpc.StreamDesc{{StreamName: "Chat", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				m := &emptypb.Empty{}
				if err := s.RecvMsg(m); err != nil {
					return nil
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		}}},
	}, nil)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return server.Stop
}

func (f *fakeRuntime) note(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.md, _ = metadata.FromIncomingContext(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		f.deadline = time.Until(deadline)
	}
	grpc.SetHeader(ctx, metadata.Pairs("from-runtime", "h"))
	grpc.SetTrailer(ctx, metadata.Pairs("after-runtime", "t"))
	if s := f.fail.Load(); s != nil {
		return s.Err()
	}
	return nil
}

func (f *fakeRuntime) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake"}, f.note(ctx)
}

func (f *fakeRuntime) ListImages(ctx context.Context, _ *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{{Id: "i"}}}, f.note(ctx)
}

func (f *fakeRuntime) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	err := f.note(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create = r
	return &runtimeapi.CreateContainerResponse{ContainerId: r.PodSandboxId}, err
}

func (f *fakeRuntime) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(r.ContainerId)}, f.note(ctx)
}

func (f *fakeRuntime) StopContainer(ctx context.Context, _ *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	f.slow.Add(1)
	defer f.slow.Add(-1)
	select {
	case <-f.hold:
	case <-ctx.Done():
	}
	return &runtimeapi.StopContainerResponse{}, ctx.Err()
}

func (f *fakeRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	f.streams.Add(1)
	defer f.streams.Add(-1)
	if err := f.note(s.Context()); err != nil {
		return err
	}
	for {
		select {
		case id := <-f.events:
			if err := s.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
				return err
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (f *fakeRuntime) lastMetadata() metadata.MD {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.md
}

func (f *fakeRuntime) lastDeadline() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deadline
}

func (f *fakeRuntime) lastCreate() *runtimeapi.CreateContainerRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.create
}
