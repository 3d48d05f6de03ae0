package standalone

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// Properties may be long: a ConfigMap has up to 1 MiB.
func TestTakesLongRequests(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	startProgram(t, sees(true), Options{Directory: dir})
	stream, _ := discover(t, await.Next(t, "the registration", a.registered), strings.Repeat("x", 10<<20))
	receive(t, stream)
}

// A list that no agent takes would be sent again and again, and none of its devices be there:
// whoever is on a network can announce any number.
func TestAListIsAsLongAsAgentsTake(t *testing.T) {
	long, many := map[string]string{"K": strings.Repeat("x", 1<<20)}, map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint("K", i)] = ""
	}
	for name, tc := range map[string]struct {
		properties    map[string]string
		devices, sent int
	}{
		"bytes":          {long, 20, 15},
		"parts":          {many, 600, maxParts / 1002},
		"not too many":   {many, maxParts / 1002, maxParts / 1002},
		"nothing at all": {nil, 0, 0},
	} {
		var got *pb.DiscoverResponse
		r := &reports{send: func(response *pb.DiscoverResponse) error { got = response; return nil }}
		devices := make([]discovery.Device, tc.devices)
		for i := range devices {
			devices[i] = discovery.Device{ID: fmt.Sprint(i), Properties: tc.properties}
		}
		r.report(discovery.Result{Devices: devices})
		if len(got.Devices) != tc.sent || proto.Size(got) > maxMessageBytes {
			t.Errorf("%s: %d devices of %d bytes are sent, want %d", name, len(got.Devices), proto.Size(got), tc.sent)
		}
		warned := len(got.Warnings) == 1 && strings.Contains(got.Warnings[0], "left out")
		if warned != (tc.sent < tc.devices) {
			t.Errorf("%s: warnings %q", name, got.Warnings)
		}
	}
}

// One connection cannot have the handler run any number of times.
func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	startProgram(t, sees(true), Options{Directory: dir})
	endpoint := await.Next(t, "the registration", a.registered).GetEndpoint()
	conn, err := grpc.NewClient("unix:"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
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
		if err := await.Next(t, "a stream once another has ended", next); err != nil {
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
	address := strings.TrimPrefix(await.Next(t, "the registration", a.registered).GetEndpoint(), "http://")
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", to)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
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
