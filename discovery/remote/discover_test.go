package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

type stream = grpc.ServerStreamingServer[pb.DiscoverResponse]

func devices(ids ...string) *pb.DiscoverResponse {
	response := &pb.DiscoverResponse{}
	for _, id := range ids {
		response.Devices = append(response.Devices, &pb.Device{Id: id})
	}
	return response
}

func ids(result discovery.Result) string {
	var all []string
	for _, d := range result.Devices {
		all = append(all, d.ID)
	}
	return strings.Join(all, " ")
}

func TestRequestAndDevicesGoOverWhole(t *testing.T) {
	s := newServer(t, nil)
	asked, taken := make(chan *pb.DiscoverRequest, 1), make(chan struct{})
	serveHandler(t, s, "udev", func(request *pb.DiscoverRequest, stream stream) error {
		asked <- request
		err := stream.Send(&pb.DiscoverResponse{Devices: []*pb.Device{{
			Id: "/dev/ü", Properties: map[string]string{"A": "1", "B": ""},
			Mounts:      []*pb.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}, {ContainerPath: "/c2", HostPath: "/h2"}},
			DeviceSpecs: []*pb.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "rw"}},
		}, {}}})
		if err != nil {
			return err
		}
		<-taken
		return sends(&pb.DiscoverResponse{})(request, stream)
	})
	run := start(t, register(t, s, "udev", false), discovery.Request{
		Details:    "udevRules:\n- KERNEL==\"x\"",
		Properties: map[string][]byte{"set": []byte("\x00\xff"), "empty": {}, "unset": nil},
	})

	want := &pb.DiscoverRequest{DiscoveryDetails: "udevRules:\n- KERNEL==\"x\"", DiscoveryProperties: map[string]*pb.ByteData{
		"set": {Vec: []byte("\x00\xff")}, "empty": {Vec: []byte{}}, "unset": {},
	}}
	if got := await.Next(t, "the request", asked); !proto.Equal(got, want) {
		t.Errorf("the handler is asked for %v, want %v", got, want)
	}
	wantResult := discovery.Result{Devices: []discovery.Device{{
		ID: "/dev/ü", Properties: map[string]string{"A": "1", "B": ""},
		Mounts:      []discovery.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}, {ContainerPath: "/c2", HostPath: "/h2"}},
		DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "rw"}},
	}, {}}}
	if diff := cmp.Diff(wantResult, await.Next(t, "the first report", run.reports)); diff != "" {
		t.Errorf("the first report (-want +got):\n%s", diff)
	}
	close(taken)
	if got := await.Next(t, "the second report", run.reports); len(got.Devices) != 0 {
		t.Errorf("the second report is %+v, want no devices", got)
	}
}

func TestShared(t *testing.T) {
	for name, tc := range map[string]struct {
		registered bool
		response   *bool
		want       bool
	}{
		"as registered: local":           {registered: false, want: false},
		"as registered: shared":          {registered: true, want: true},
		"shared by the response":         {registered: false, response: proto.Bool(true), want: true},
		"local by the response":          {registered: true, response: proto.Bool(false), want: false},
		"the response says it once more": {registered: true, response: proto.Bool(true), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			serveHandler(t, s, "x", sends(&pb.DiscoverResponse{Shared: tc.response}))
			run := start(t, register(t, s, "x", tc.registered), discovery.Request{})
			if got := await.Next(t, "a report", run.reports); got.Shared != tc.want {
				t.Errorf("reported shared: %t, want %t", got.Shared, tc.want)
			}
		})
	}
}

// A handler that registers anew with another answer must not go on under the old one.
func TestSharedChangesWithARegistration(t *testing.T) {
	s := newServer(t, nil)
	serveHandler(t, s, "x", sends(devices("a")))
	source := register(t, s, "x", false)
	run := start(t, source, discovery.Request{})
	await.Next(t, "the report of local devices", run.reports)

	if again := register(t, s, "x", true); again != source {
		t.Error("the source is another one")
	}
	if err := await.Next(t, "the end of the stream", run.done); err == nil ||
		!strings.Contains(err.Error(), "shared: true") {
		t.Errorf("Discover() = %v, want an error that says why", err)
	}
	run = start(t, source, discovery.Request{})
	if got := await.Next(t, "the report of shared devices", run.reports); !got.Shared {
		t.Error("the devices are still local")
	}
}

// Akri's handlers register again after each stream that was cancelled.
func TestTheSameRegistrationAgainDisturbsNothing(t *testing.T) {
	s := newServer(t, nil)
	more := make(chan *pb.DiscoverResponse)
	serveHandler(t, s, "x", func(_ *pb.DiscoverRequest, stream stream) error {
		for {
			select {
			case m := <-more:
				if err := stream.Send(m); err != nil {
					return err
				}
			case <-stream.Context().Done():
				return nil
			}
		}
	})
	source := register(t, s, "x", true)
	run := start(t, source, discovery.Request{})
	more <- devices("a")
	await.Next(t, "the first report", run.reports)
	_, changed := s.config.Registry.Sources("x")
	renewed := source.Renewed()

	register(t, s, "x", true)
	await.Next(t, "the renewal", renewed)
	more <- devices("a", "b")
	if got := ids(await.Next(t, "a report on the stream that was open", run.reports)); got != "a b" {
		t.Errorf("reported %q, want a and b", got)
	}
	select {
	case <-changed:
		t.Error("the sources changed")
	case err := <-run.done:
		t.Errorf("the stream ended: %v", err)
	default:
	}
}

// Each list is all that there is: what a handler sent while one was reported does not delay the
// newest.
func TestTheNewestListReplacesOlderOnes(t *testing.T) {
	s := newServer(t, nil)
	sent := make(chan struct{})
	serveHandler(t, s, "x", func(_ *pb.DiscoverRequest, stream stream) error {
		for i := range 10_001 {
			if err := stream.Send(devices(fmt.Sprint(i))); err != nil {
				return err
			}
		}
		close(sent)
		<-stream.Context().Done()
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan string), make(chan error, 1)
	go func() {
		done <- register(t, s, "x", true).Handler.Discover(ctx, discovery.Request{}, func(result discovery.Result) {
			reports <- ids(result)
		})
	}()
	await.Next(t, "the handler to send, though nobody takes a report", sent)
	taken := 1
	for await.Next(t, "a report", reports) != "10000" {
		taken++
	}
	if taken > 2000 {
		t.Errorf("reported %d lists of a flood until the newest", taken)
	}
	cancel()
	await.Next(t, "the end", done)
}

func TestSilenceIsAReportOfNoDevices(t *testing.T) {
	s := newServer(t, nil)
	s.silentAfter = 50 * time.Millisecond
	speak := make(chan struct{})
	serveHandler(t, s, "x", func(request *pb.DiscoverRequest, stream stream) error {
		<-speak
		return sends(devices("late"))(request, stream)
	})
	run := start(t, register(t, s, "x", true), discovery.Request{})
	if got := await.Next(t, "the report for the silence", run.reports); len(got.Devices) != 0 || !got.Shared {
		t.Errorf("reported %+v, want no devices, shared", got)
	}
	close(speak)
	if got := ids(await.Next(t, "what it said then", run.reports)); got != "late" {
		t.Errorf("reported %q, want the late device", got)
	}
}

func TestSilenceAfterAReportMeansNoChange(t *testing.T) {
	s := newServer(t, nil)
	s.silentAfter = time.Second
	serveHandler(t, s, "x", sends(devices("a")))
	run := start(t, register(t, s, "x", true), discovery.Request{})
	got := ids(await.Next(t, "the report", run.reports))
	for got == "" && s.silentAfter < await.Patience { // a busy machine took longer
		run.cancel()
		await.Next(t, "the end", run.done)
		s.silentAfter *= 2
		run = start(t, register(t, s, "x", true), discovery.Request{})
		got = ids(await.Next(t, "the report", run.reports))
	}
	if got != "a" {
		t.Fatalf("reported %q, want a", got)
	}
	select {
	case got := <-run.reports:
		t.Errorf("reported %+v for a handler that had nothing new to say", got)
	case <-time.After(s.silentAfter + 500*time.Millisecond):
	}
}

func TestAHandlerThatIsKilled(t *testing.T) {
	s := newServer(t, nil)
	kill := serveHandler(t, s, "x", sends(devices("a")))
	source := register(t, s, "x", true)
	run := start(t, source, discovery.Request{})
	await.Next(t, "the report", run.reports)
	kill()
	if err := await.Next(t, "the end of the stream", run.done); err == nil ||
		!strings.Contains(err.Error(), "the stream broke") {
		t.Errorf("Discover() = %v, want that the stream broke", err)
	}
	if len(run.reports) > 0 {
		t.Errorf("reported %+v: a handler that is gone says nothing of devices", <-run.reports)
	}
	run = start(t, source, discovery.Request{})
	if err := await.Next(t, "the failure to connect", run.done); err == nil ||
		!strings.Contains(err.Error(), "cannot connect") {
		t.Errorf("Discover() = %v, want that it cannot connect", err)
	}
	serveHandler(t, s, "x", sends(devices("a")))
	run = start(t, source, discovery.Request{})
	if got := ids(await.Next(t, "the report of the handler that returned", run.reports)); got != "a" {
		t.Errorf("reported %q, want a", got)
	}
}

func TestEndsPromptly(t *testing.T) {
	silent := make(chan net.Conn, 1)
	for name, prepare := range map[string]func(t *testing.T, s *Server){
		"an open stream":              func(t *testing.T, s *Server) { serveHandler(t, s, "x", sends(devices("a"))) },
		"a handler that says nothing": func(t *testing.T, s *Server) { serveHandler(t, s, "x", sends()) },
		"a socket on which nobody speaks": func(t *testing.T, s *Server) {
			l, err := net.Listen("unix", filepath.Join(s.config.Directory, "x.sock"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				conn, err := l.Accept()
				if err == nil {
					silent <- conn // keeps it open
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			s.connectTimeout = time.Hour
			prepare(t, s)
			run := start(t, register(t, s, "x", true), discovery.Request{})
			select {
			case <-run.reports:
			case <-time.After(50 * time.Millisecond):
			}
			run.cancel()
			if err := await.Next(t, "the end", run.done); !errors.Is(err, context.Canceled) {
				t.Errorf("Discover() = %v, want %v", err, context.Canceled)
			}
		})
	}
}

func TestNetworkEndpoint(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, sends(devices("a")))
	s := newServer(t, nil)
	for _, endpoint := range []string{"http://" + l.Addr().String(), l.Addr().String()} {
		source := registerAt(t, s, &pb.RegisterDiscoveryHandlerRequest{Name: "x", Endpoint: endpoint, EndpointType: network})
		run := start(t, source, discovery.Request{})
		if got := ids(await.Next(t, "the report of "+endpoint, run.reports)); got != "a" {
			t.Errorf("reported %q, want a", got)
		}
	}
	if n := len(sources(s, "x")); n != 1 {
		t.Errorf("%d sources for one endpoint in two spellings", n)
	}
}
