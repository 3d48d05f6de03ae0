//go:build !race

// The worker's limit of memory. Under the race detector there is none, so that this test is not
// in the worker's own package.
package memorylimit_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/kubecri/discoveryworker"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// TestMain is also the worker.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != discoveryworker.Command {
		os.Exit(m.Run())
	}
	klog.Fatal(discoveryworker.Serve(context.Background(), "", remote.NewRunner(map[string]pb.DiscoveryHandlerServer{
		"greedy": standalone.NewService(greedy{}, klog.Background())})))
}

// greedy takes memory without end.
type greedy struct{}

func (greedy) Name() string { return "greedy" }

func (greedy) Shared() bool { return true }

func (greedy) Discover(context.Context, discovery.Request, func(discovery.Result)) error {
	var all [][]byte
	for range 1 << 10 { // 1 GiB, not all that the machine has
		all = append(all, make([]byte, 1<<20))
	}
	_ = all[len(all)-1]
	return discovery.Invalidf("took %d MiB", len(all))
}

// start returns a server whose handlers run in a worker, and the directory where they register.
func start(t *testing.T) (*remote.Server, *discovery.Registry, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, registry, directory := newProcess(ctx, t), discovery.NewRegistry(), t.TempDir()
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: directory, Worker: w})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return server, registry, directory
}

func newProcess(ctx context.Context, t *testing.T) remote.Worker {
	return discoveryworker.NewProcess(ctx, clock.RealClock{}, filepath.Join(t.TempDir(), "worker.sock"), nil)
}

func TestAWorkerThatTakesTooMuchMemoryEnds(t *testing.T) {
	server, _, _ := start(t)
	err := server.InWorker(greedy{}).Discover(t.Context(), discovery.Request{}, func(discovery.Result) {})
	ended := regexp.MustCompile(`^the discovery worker does not run: exit status 2: fatal error: .*\bmemory\b`)
	if err == nil || !ended.MatchString(err.Error()) {
		t.Errorf("Discover() = %v, want that the worker has no more memory", err)
	}
}

// large is a registered handler that sends a list of almost 16 MiB.
type large struct {
	pb.UnimplementedDiscoveryHandlerServer
	list *pb.DiscoverResponse
}

func (l large) Discover(_ *pb.DiscoverRequest, stream grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
	if err := stream.Send(l.list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// As much as registered handlers may send at a time fits in the worker: each has its turn.
func TestManyLargeListsFit(t *testing.T) {
	const handlers = 30
	_, registry, directory := start(t)
	service := grpc.NewServer()
	defer service.Stop()
	pb.RegisterDiscoveryHandlerServer(service, large{list: &pb.DiscoverResponse{
		Devices: []*pb.Device{{Id: strings.Repeat("x", 16<<20-100)}}}})
	l, err := net.Listen("unix", filepath.Join(directory, "large.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go service.Serve(l)
	conn, err := grpc.NewClient("unix:"+filepath.Join(directory, pb.RegistrationSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := &pb.RegisterDiscoveryHandlerRequest{Name: "large", Endpoint: "large.sock"}
	client := pb.NewRegistrationClient(conn)
	if _, err := client.RegisterDiscoveryHandler(t.Context(), request, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	sources, _ := registry.Sources("large")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var reported atomic.Int32
	var running sync.WaitGroup
	for range handlers { // each for a Configuration of its own
		running.Go(func() {
			err := sources[0].Handler.Discover(ctx, discovery.Request{}, func(discovery.Result) {
				if reported.Add(1) == handlers {
					cancel()
				}
			})
			if ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if n := reported.Load(); n != handlers {
		t.Errorf("%d of %d lists were reported", n, handlers)
	}
}
