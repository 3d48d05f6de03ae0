package discoveryworker

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// registered is a handler in another process than kubecri and the worker; here it is the
// test's own.
type registered struct {
	pb.UnimplementedDiscoveryHandlerServer
}

func (registered) Discover(request *pb.DiscoverRequest,
	stream grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
	if request.GetDiscoveryDetails() == "refuse" {
		return status.Error(codes.InvalidArgument, "no such key")
	}
	var devices []*pb.Device
	for _, d := range largeList() {
		devices = append(devices, &pb.Device{Id: d.ID, Properties: d.Properties})
	}
	if err := stream.Send(&pb.DiscoverResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// What speaks to a handler that registers is the worker, which may not open the handler's socket.
func TestHandlersThatRegisterAreAskedByTheWorker(t *testing.T) {
	w, clock := startWorker(t)
	directory := t.TempDir()
	registry := discovery.NewRegistry()
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: directory, Worker: w})
	if err != nil {
		t.Fatal(err)
	}
	runs(t, server.Run)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", filepath.Join(directory, "theirs.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		l        net.Listener
		endpoint string
		kind     pb.RegisterDiscoveryHandlerRequest_EndpointType
	}{
		{unix, "theirs.sock", pb.RegisterDiscoveryHandlerRequest_UDS},
		{tcp, "http://" + tcp.Addr().String(), pb.RegisterDiscoveryHandlerRequest_NETWORK},
	} {
		t.Run(tc.l.Addr().Network(), func(t *testing.T) {
			theirs := grpc.NewServer()
			pb.RegisterDiscoveryHandlerServer(theirs, registered{})
			go theirs.Serve(tc.l)
			defer theirs.Stop()
			handler := register(t, registry, directory, &pb.RegisterDiscoveryHandlerRequest{
				Name: tc.l.Addr().Network(), Endpoint: tc.endpoint, EndpointType: tc.kind, Shared: true})

			running := discover(t, handler, "")
			got, want := await.Next(t, "the report", running.reports), largeList()
			if !reflect.DeepEqual(got.Devices, want) || !got.Shared {
				t.Errorf("%d devices arrived, want %d, each as it was sent", len(got.Devices), len(want))
			}
			err := await.Next(t, "the error", discover(t, handler, "refuse").done)
			if !errors.Is(err, discovery.ErrInvalid) || !strings.HasSuffix(err.Error(), "refuses: no such key") {
				t.Errorf("Discover() = %v, want what the handler refuses", err)
			}
			discover(t, handlerOf(w, directory), "panic boom")
			err = await.Next(t, "the error", running.done)
			if !errors.Is(err, remote.ErrNoWorker) || !strings.Contains(err.Error(), "panic: boom") {
				t.Errorf("Discover() = %v, want why the worker ended", err)
			}
			clock.Step(restarts.Cap)
		})
	}
}

// A value of a Secret goes to no handler over http, and TLS ends in the worker, which knows the CA.
func TestSecretsOfHandlersThatRegister(t *testing.T) {
	w, _ := startWorker(t)
	directory, registry := t.TempDir(), discovery.NewRegistry()
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: directory, Worker: w})
	if err != nil {
		t.Fatal(err)
	}
	runs(t, server.Run)
	secured := httptest.NewUnstartedServer(nil)
	secured.StartTLS()
	defer secured.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw})
	ca = bytes.Repeat(ca, 96<<10/len(ca)) // as many as a Configuration may have
	for scheme, options := range map[string][]grpc.ServerOption{
		"http":  nil,
		"https": {grpc.Creds(credentials.NewServerTLSFromCert(&secured.TLS.Certificates[0]))},
	} {
		t.Run(scheme, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			asked := make(chan *pb.DiscoverRequest, 1)
			theirs := grpc.NewServer(options...)
			pb.RegisterDiscoveryHandlerServer(theirs, asking{requests: asked})
			go theirs.Serve(l)
			defer theirs.Stop()
			handler := register(t, registry, directory, &pb.RegisterDiscoveryHandlerRequest{Name: scheme,
				Endpoint: scheme + "://" + l.Addr().String(), EndpointType: pb.RegisterDiscoveryHandlerRequest_NETWORK})
			err = handler.Discover(t.Context(), discovery.Request{Secret: true, CABundle: ca,
				Properties: map[string][]byte{"password": []byte("secret")}}, func(discovery.Result) {})
			if scheme == "http" {
				if !errors.Is(err, discovery.ErrSecretsNeedTLS) || len(asked) > 0 {
					t.Errorf("Discover() = %v, and the handler was asked %d times", err, len(asked))
				}
				return
			}
			if len(asked) == 0 {
				t.Fatalf("the handler was not asked: %v", err)
			}
			if got := string((<-asked).GetDiscoveryProperties()["password"].GetVec()); got != "secret" {
				t.Errorf("the handler got the password %q", got)
			}
		})
	}
}

// asking is a handler that takes note of requests, and ends.
type asking struct {
	pb.UnimplementedDiscoveryHandlerServer
	requests chan *pb.DiscoverRequest
}

func (a asking) Discover(request *pb.DiscoverRequest, _ grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
	a.requests <- request
	return nil
}

// register registers a handler as one does, and returns it as the agent has it.
func register(t *testing.T, registry *discovery.Registry, directory string,
	request *pb.RegisterDiscoveryHandlerRequest) discovery.Handler {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(directory, pb.RegistrationSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pb.NewRegistrationClient(conn)
	if _, err := client.RegisterDiscoveryHandler(t.Context(), request, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	sources, _ := registry.Sources(request.GetName())
	if len(sources) != 1 {
		t.Fatalf("%s has %d sources", request.GetName(), len(sources))
	}
	return sources[0].Handler
}
