package remote

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

func TestFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		discover func(*pb.DiscoverRequest, stream) error
		want     string // a part of the error
		invalid  bool   // it is the Configuration's author's
	}{
		"bad details": {func(*pb.DiscoverRequest, stream) error {
			return status.Error(codes.InvalidArgument, "no rules")
		}, "the handler refuses: no rules", true},
		"unavailable": {func(*pb.DiscoverRequest, stream) error { return status.Error(codes.Unavailable, "no bus") },
			"Unavailable: no bus", false},
		"an end that is none": {func(*pb.DiscoverRequest, stream) error { return nil }, "ended the stream", false},
		"an endless message": {func(*pb.DiscoverRequest, stream) error {
			return status.Error(codes.Internal, strings.Repeat("x", 20<<10)+"\xff")
		}, "Internal: xxx", false},
		"a response of 17 MiB": {func(r *pb.DiscoverRequest, s stream) error {
			return sends(devices(strings.Repeat("x", 17<<20)))(r, s)
		}, "larger than max", false},
		"a response of a million devices": {func(r *pb.DiscoverRequest, s stream) error {
			return sends(&pb.DiscoverResponse{Devices: make([]*pb.Device, 1_000_000)})(r, s)
		}, "more than 500000 devices", false},
		"a device of a million mounts": {func(r *pb.DiscoverRequest, s stream) error {
			return sends(&pb.DiscoverResponse{Devices: []*pb.Device{{Mounts: make([]*pb.Mount, 1_000_000)}}})(r, s)
		}, "more than 500000 devices", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			serveHandler(t, s, "x", tc.discover)
			run := start(t, register(t, s, "x", true), discovery.Request{})
			err := await.Next(t, "the error", run.done)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "endpoint "+s.config.Directory) {
				t.Errorf("Discover() = %v, want an error of the endpoint with %q", err, tc.want)
			}
			if got := errors.Is(err, discovery.ErrInvalid); got != tc.invalid {
				t.Errorf("%v is an ErrInvalid: %t, want %t", err, got, tc.invalid)
			}
			if len(err.Error()) > 2<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if len(run.reports) > 0 {
				t.Errorf("reported %d devices", len((<-run.reports).Devices))
			}
		})
	}
}

func TestWhatIsNoHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, path string)
		want    string
	}{
		"no file": {func(*testing.T, string) {}, "no such socket"},
		"a file": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "is no socket"},
		"a link to a socket elsewhere": {func(t *testing.T, path string) {
			other := filepath.Join(t.TempDir(), "runtime.sock")
			l, err := net.Listen("unix", other)
			if err != nil {
				t.Fatal(err)
			}
			serveOn(t, l, sends(devices("a")))
			if err := os.Symlink(other, path); err != nil {
				t.Fatal(err)
			}
		}, "is no socket"},
		"a service of another kind": {func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			go server.Serve(l)
			t.Cleanup(server.Stop)
		}, "Unimplemented"},
		"garbage": {func(t *testing.T, path string) { answers(t, path, strings.Repeat("garbage ", 1000)) }, "cannot connect"},
		"HTTP/1":  {func(t *testing.T, path string) { answers(t, path, "HTTP/1.1 400 Bad Request\r\n\r\n") }, "cannot connect"},
		// A frame of settings, then one that claims 16 MiB of headers.
		"garbage behind a handshake": {func(t *testing.T, path string) {
			answers(t, path, "\x00\x00\x00\x04\x00\x00\x00\x00\x00"+"\xff\xff\xff\x01\x04\x00\x00\x00\x01"+strings.Repeat("\xff", 1<<20))
		}, "endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			tc.prepare(t, filepath.Join(s.config.Directory, "x.sock"))
			run := start(t, register(t, s, "x", true), discovery.Request{})
			if err := await.Next(t, "the error", run.done); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Discover() = %v, want an error with %q", err, tc.want)
			}
			if len(run.reports) > 0 {
				t.Errorf("reported %+v", <-run.reports)
			}
		})
	}
}

// answers answers each connection with the text, and closes it.
func answers(t *testing.T, path, text string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte(text))
			conn.Close()
		}
	}()
}

// A process that is stopped, or hangs: its socket takes connections all the same.
func TestAHandlerThatNeverAnswers(t *testing.T) {
	s := newServer(t, nil)
	s.connectTimeout = 100 * time.Millisecond
	l, err := net.Listen("unix", filepath.Join(s.config.Directory, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run := start(t, register(t, s, "x", true), discovery.Request{})
	if err := await.Next(t, "the error", run.done); err == nil || !strings.Contains(err.Error(), "cannot connect") {
		t.Errorf("Discover() = %v, want that it cannot connect", err)
	}
	if len(run.reports) > 0 {
		t.Errorf("reported %+v: what hangs says nothing of devices", <-run.reports)
	}
}

// The agent takes 20,000 devices of a Configuration, and says that there are more.
func TestMoreDevicesThanTheAgentTakes(t *testing.T) {
	s := newServer(t, nil)
	many := &pb.DiscoverResponse{}
	for i := range 20_001 {
		d := &pb.Device{Id: fmt.Sprint(i), Properties: map[string]string{}, DeviceSpecs: []*pb.DeviceSpec{{HostPath: "/dev/null"}}}
		for p := range 8 {
			d.Properties[fmt.Sprint("PROPERTY_", p)] = "some value"
		}
		many.Devices = append(many.Devices, d)
	}
	serveHandler(t, s, "x", sends(many))
	run := start(t, register(t, s, "x", true), discovery.Request{})
	if got := await.Next(t, "the report", run.reports); len(got.Devices) != 20_001 {
		t.Errorf("reported %d devices, want all", len(got.Devices))
	}
}

func TestWarningsArePassedOnceAndBounded(t *testing.T) {
	s := newServer(t, nil)
	first, flood := devices(), devices("end")
	first.Warnings = []string{"unknown key", "unknown key", "", strings.Repeat("x", 1<<20)}
	for i := range 100 {
		flood.Warnings = append(flood.Warnings, fmt.Sprint(i))
	}
	serveHandler(t, s, "x", sends(first, first, flood))
	run := start(t, register(t, s, "x", true), discovery.Request{})
	// The others may be replaced, and their warnings are passed.
	for ids(await.Next(t, "a report", run.reports)) != "end" {
	}
	if len(run.warnings) != maxWarnings {
		t.Errorf("%d warnings, want %d", len(run.warnings), maxWarnings)
	}
	if got := <-run.warnings; got != "unknown key" {
		t.Errorf("the first warning is %q", got)
	}
	if got := <-run.warnings; !strings.HasPrefix(got, "xxx") || len(got) > 2*maxWarningBytes {
		t.Errorf("the second warning is %.20q… of %d bytes, want the next one, shortened", got, len(got))
	}
}

// What a handler sends without end is reported at times.
func TestAHandlerThatNeverStopsSending(t *testing.T) {
	s := newServer(t, nil)
	serveHandler(t, s, "x", func(_ *pb.DiscoverRequest, stream stream) error {
		big := devices(strings.Repeat("x", 4<<20))
		for {
			if err := stream.Send(big); err != nil {
				return nil
			}
		}
	})
	began := time.Now()
	run := start(t, register(t, s, "x", true), discovery.Request{})
	for range burstBytes/(4<<20) + 2 { // the last one waits for the one before
		await.Next(t, "a report", run.reports)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("took more than %d MiB in %v", burstBytes>>20, took)
	}
}
