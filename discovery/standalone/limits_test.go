package standalone

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// Properties may be long: a ConfigMap has up to 1 MiB.
func TestTakesLongRequests(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	startProgram(t, sees(true), Options{Directory: dir})
	stream, _ := discover(t, await(t, a.registered, "the registration"), strings.Repeat("x", 10<<20))
	receive(t, stream)
}

// One connection cannot have the handler run any number of times.
func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	startProgram(t, sees(true), Options{Directory: dir})
	conn, err := grpc.NewClient("unix:"+await(t, a.registered, "the registration").GetEndpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	first, end := context.WithCancel(ctx)
	t.Cleanup(end)
	for i := range maxStreams {
		of := ctx
		if i == 0 {
			of = first
		}
		stream, err := pb.NewDiscoveryHandlerClient(conn).Discover(of, &pb.DiscoverRequest{})
		if err != nil {
			t.Fatal(err)
		}
		receive(t, stream)
	}
	next := make(chan error, 1)
	go func() {
		stream, err := pb.NewDiscoveryHandlerClient(conn).Discover(ctx, &pb.DiscoverRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		next <- err
	}()
	select {
	case err := <-next:
		t.Errorf("stream %d is served at once (%v)", maxStreams+1, err)
	case <-time.After(200 * time.Millisecond):
		end()
		if err := await(t, next, "a stream once another has ended"); err != nil {
			t.Error(err)
		}
	}
}

// A machine on the network that connects and asks for nothing does not end an agent's
// connection, with its streams.
func TestIdleConnectionsKeepNoAgentOut(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	startProgram(t, sees(true), Options{Directory: dir, IP: "127.0.0.1"})
	address := strings.TrimPrefix(await(t, a.registered, "the registration").GetEndpoint(), "http://")
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", to)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	for i := range 2 {
		stream, err := pb.NewDiscoveryHandlerClient(conn).Discover(ctx, &pb.DiscoverRequest{})
		if err != nil {
			t.Fatal(err)
		}
		receive(t, stream)
		if i == 1 {
			break
		}
		go func() { _, err := stream.Recv(); ended <- err }()
		for range 2 * maxPerAddress {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the stream ended: %v", err)
	default:
	}
}
