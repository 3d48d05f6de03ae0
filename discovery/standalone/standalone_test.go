package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

func TestRegistersAndServes(t *testing.T) {
	device := discovery.Device{ID: "a", Properties: map[string]string{"K": "V"},
		Mounts:      []discovery.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}},
		DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "rw"}}}
	want := &pb.DiscoverResponse{Devices: []*pb.Device{{Id: "a", Properties: map[string]string{"K": "V"},
		Mounts:      []*pb.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}},
		DeviceSpecs: []*pb.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "rw"}}}}}

	for name, tc := range map[string]struct {
		ip     string
		shared bool
	}{
		"on a unix socket":   {shared: true},
		"local devices":      {shared: false},
		"on a pod's address": {ip: "127.0.0.1"},
		"on an IPv6 address": {ip: "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := startAgent(t, dir, nil)
			h := sees(tc.shared, device)
			requests := make(chan discovery.Request, 1)
			report := h.discover
			h.discover = func(ctx context.Context, request discovery.Request, r func(discovery.Result)) error {
				requests <- request
				return report(ctx, request, r)
			}
			if tc.ip != "" {
				if l, err := net.Listen("tcp", net.JoinHostPort(tc.ip, "0")); err != nil {
					t.Skipf("this machine has no such address: %v", err)
				} else {
					l.Close()
				}
			}
			startProgram(t, h, Options{Directory: dir, IP: tc.ip})

			registered := await.Next(t, "the registration", a.registered)
			wantRegistered := &pb.RegisterDiscoveryHandlerRequest{Name: "fake", Endpoint: dir + "/fake.sock", Shared: tc.shared}
			if tc.ip != "" {
				wantRegistered.EndpointType = pb.RegisterDiscoveryHandlerRequest_NETWORK
				wantRegistered.Endpoint = registered.GetEndpoint()
				if prefix := "http://" + strings.TrimSuffix(net.JoinHostPort(tc.ip, ""), ""); !strings.HasPrefix(registered.GetEndpoint(), prefix) {
					t.Errorf("the endpoint is %s, want one with %s", registered.GetEndpoint(), prefix)
				}
			} else if info, err := os.Lstat(registered.GetEndpoint()); err != nil || info.Mode() != os.ModeSocket|0o600 {
				t.Errorf("the socket is %v (%v), want 0600", info, err)
			}
			if diff := cmp.Diff(wantRegistered, registered, protocmp.Transform()); diff != "" {
				t.Errorf("registered (-want +got):\n%s", diff)
			}
			stream, _ := discover(t, registered, "details: x")
			if diff := cmp.Diff(want, receive(t, stream), protocmp.Transform()); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			request := <-requests
			if request.Details != "details: x" || string(request.Properties["set"]) != "v" {
				t.Errorf("the handler is asked for %+v", request)
			}
			if value, ok := request.Properties["unset"]; !ok || value != nil {
				t.Errorf("the property without value is %q, %t: want nil", value, ok)
			}
		})
	}
}

// Handlers and the agent start in any order, and each may be restarted.
func TestRegistersAgain(t *testing.T) {
	dir := t.TempDir()
	h := sees(true)
	p := startProgram(t, h, Options{Directory: dir}) // before there is an agent
	a := startAgent(t, dir, nil)
	await.Next(t, "the registration with an agent that starts later", a.registered)

	a.stop() // no stream breaks: none is open
	a = startAgent(t, dir, nil)
	registered := await.Next(t, "the registration with the next agent", a.registered)

	stream, cancel := discover(t, registered, "")
	receive(t, stream)
	cancel()
	await.Next(t, "the registration after a stream was dropped", a.registered)

	p.stop()
	if err := await.Next(t, "the end", p.ended); err != nil {
		t.Errorf("Serve() = %v after its context ended", err)
	}
	if _, err := os.Lstat(registered.GetEndpoint()); !os.IsNotExist(err) {
		t.Errorf("the socket is still there (%v)", err)
	}
}

func TestARefusedRegistrationDoesNotEndTheHandler(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, status.Error(codes.Internal, "not now"))
	p := startProgram(t, sees(true), Options{Directory: dir})
	await.Next(t, "the registration that is refused", a.registered)
	a.stop()
	a = startAgent(t, dir, nil)
	await.Next(t, "the next registration", a.registered)
	select {
	case err := <-p.ended:
		t.Errorf("Serve() = %v", err)
	default:
	}
}

func TestWhatEndsAStream(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	h := &fake{discover: func(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
		switch request.Details {
		case "invalid":
			return discovery.Invalidf("rule 1: no such key")
		case "failure":
			return errors.New("no bus")
		case "end":
			return nil
		case "panic":
			panic("nil pointer")
		}
		report(discovery.Result{})
		<-ctx.Done()
		return ctx.Err()
	}}
	startProgram(t, h, Options{Directory: dir})
	registered := await.Next(t, "the registration", a.registered)
	other, _ := discover(t, registered, "goes on")
	receive(t, other)
	for details, want := range map[string]struct {
		code codes.Code
		text string
	}{
		"invalid": {codes.InvalidArgument, "rule 1: no such key"},
		"failure": {codes.Unavailable, "no bus"},
		"end":     {codes.Unavailable, "ended, though it should go on"},
		"panic":   {codes.Unavailable, "panic: nil pointer"},
	} {
		stream, _ := discover(t, registered, details)
		_, err := stream.Recv()
		if status.Code(err) != want.code || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: the stream ends with %v, want %v with %q", details, err, want.code, want.text)
		}
	}
	// A registration would end the agent's backoff, and have it call again at once.
	select {
	case <-a.registered:
		t.Error("registered again though no stream was dropped")
	case <-time.After(2 * lookInterval):
	}
	if err := other.Context().Err(); err != nil {
		t.Errorf("the stream of another Configuration ended: %v", err)
	}
}

// The protocol knows one answer to "shared" for all devices of a handler, kubecri one
// for each report.
func TestReportsThatAreNotSharedAsRegistered(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	h := &fake{shared: true, discover: func(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
		report(discovery.Result{Shared: request.Details == "shared"})
		<-ctx.Done()
		return ctx.Err()
	}}
	startProgram(t, h, Options{Directory: dir})
	registered := await.Next(t, "the registration", a.registered)
	for details, want := range map[string]*bool{"shared": nil, "local": proto.Bool(false)} {
		stream, _ := discover(t, registered, details)
		if got := receive(t, stream); cmp.Diff(want, got.Shared) != "" {
			t.Errorf("%s: the response says %v", details, got.Shared)
		}
	}
}

func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir, nil)
	later := make(chan struct{})
	h := &fake{discover: func(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
		request.Warn("before")
		request.Warn("before")
		report(discovery.Result{Devices: []discovery.Device{{ID: "a"}, {ID: "\xff"}, {ID: "b", Properties: map[string]string{"K": "\xfe"}}}})
		<-later
		request.Warn("after \xff")
		report(discovery.Result{})
		for i := range 100 {
			request.Warn(fmt.Sprint(i))
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	startProgram(t, h, Options{Directory: dir})
	stream, _ := discover(t, await.Next(t, "the registration", a.registered), "")

	first := receive(t, stream)
	if len(first.GetDevices()) != 1 || first.GetDevices()[0].GetId() != "a" {
		t.Errorf("sent %v, want the one device that can be sent", first.GetDevices())
	}
	if w := first.GetWarnings(); len(w) != 3 || w[0] != "before" || !strings.Contains(w[1], `device "\xff" is left out`) || !strings.Contains(w[2], `device "b"`) {
		t.Errorf("warned of %q", w)
	}
	close(later)
	second := receive(t, stream)
	if !slices.Equal(second.GetWarnings(), []string{"after ?"}) || len(second.GetDevices()) != 1 {
		t.Errorf("the warning comes as %v, want it with the devices of the last report", second)
	}
	if third := receive(t, stream); len(third.GetWarnings())+len(third.GetDevices()) != 0 {
		t.Errorf("the second report is sent as %v", third)
	}
	for i := range maxWarnings - 4 {
		if got := receive(t, stream).GetWarnings(); !slices.Equal(got, []string{fmt.Sprint(i)}) {
			t.Errorf("warned of %q, want %d", got, i)
		}
	}
	select {
	case got := <-next(stream):
		t.Errorf("sent %v, want no more than %d warnings", got, maxWarnings)
	case <-time.After(100 * time.Millisecond):
	}
}

func next(stream interface {
	Recv() (*pb.DiscoverResponse, error)
}) <-chan *pb.DiscoverResponse {
	c := make(chan *pb.DiscoverResponse, 1)
	go func() {
		if response, err := stream.Recv(); err == nil {
			c <- response
		}
	}()
	return c
}

func TestTheSocket(t *testing.T) {
	t.Run("of a process that still serves", func(t *testing.T) {
		dir := t.TempDir()
		a := startAgent(t, dir, nil)
		first := startProgram(t, sees(true), Options{Directory: dir})
		await.Next(t, "the first process's registration", a.registered)
		startProgram(t, sees(true), Options{Directory: dir})
		select {
		case <-a.registered:
			t.Error("the second process took the socket")
		case err := <-first.ended:
			t.Errorf("the first process ended: %v", err)
		case <-time.After(2 * lookInterval):
		}
		first.stop()
		await.Next(t, "the second process's registration", a.registered)
	})
	t.Run("taken or removed by somebody", func(t *testing.T) {
		for name, do := range map[string]func(path string) error{
			"removed": os.Remove,
			"taken": func(path string) error {
				if err := os.Remove(path); err != nil {
					return err
				}
				_, err := unixsocket.Listen(path)
				return err
			},
		} {
			dir := t.TempDir()
			p := startProgram(t, sees(true), Options{Directory: dir})
			a := startAgent(t, dir, nil)
			if err := do(await.Next(t, "the registration", a.registered).GetEndpoint()); err != nil {
				t.Fatal(err)
			}
			if err := await.Next(t, "the end: nobody can find the handler", p.ended); err == nil ||
				!strings.Contains(err.Error(), "socket") {
				t.Errorf("%s: Serve() = %v, want an error", name, err)
			}
		}
	})
}

// silentHandler is no discovery.Sharer.
type silentHandler struct{ discovery.Handler }

func (silentHandler) Name() string { return "silent" }

func TestCannotServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		handler discovery.Handler
		options Options
		want    string
	}{
		"a handler that does not know what it finds": {silentHandler{}, Options{Directory: t.TempDir()}, "discovery.Sharer"},
		"a directory that is a file":                 {sees(true), Options{Directory: file}, "not a directory"},
		"no address":                                 {sees(true), Options{Directory: t.TempDir(), IP: "node-a"}, "POD_IP"},
		"somebody else's address":                    {sees(true), Options{Directory: t.TempDir(), IP: "192.0.2.1"}, "cannot assign"},
	} {
		if err := Serve(t.Context(), tc.handler, tc.options); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Serve() = %v, want an error with %q", name, err, tc.want)
		}
	}
}

// What a user asked for goes to the standard output, so that it can be piped; what is wrong with
// the command line goes to the standard error.
func TestCommandLine(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want int
		text []string // parts of what is printed
	}{
		"help": {args: []string{"--help"}, want: 0, text: []string{
			`discovery handler "fake"`, "--own", "DISCOVERY_HANDLERS_DIRECTORY", `"/var/lib/akri"`,
		}},
		"version": {args: []string{"--version"}, want: 0, text: []string{"Kubeslot v"}},
		"environment": {args: []string{"--help"}, env: map[string]string{"DISCOVERY_HANDLERS_DIRECTORY": "/d", "POD_IP": "10.0.0.5"},
			text: []string{`(default "/d")`, `(default "10.0.0.5")`}},
		"an unknown flag":     {args: []string{"--nonsense"}, want: 2, text: []string{"--nonsense", "--help"}},
		"an argument":         {args: []string{"nonsense"}, want: 2, text: []string{`"nonsense"`}},
		"a bad port":          {args: []string{"--port=x"}, want: 2, text: []string{"--port"}},
		"a negative interval": {args: []string{"--every=-1s"}, want: 2, text: []string{"--every -1s", "--help"}},
		"no interval":         {args: []string{"--every=0"}, want: 2, text: []string{"--every 0s"}},
		"cannot serve":        {args: []string{"--pod-ip=node-a"}, want: 1},
		"serves":              {args: []string{"--discovery-handlers-directory=" + t.TempDir(), "--own=x"}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			var own string
			ctx := ended
			if tc.want == 1 {
				ctx = t.Context() // it ends by itself
			}
			env := func(name string) string { return tc.env[name] }
			status := run(ctx, append([]string{"/bin/fake-discovery"}, tc.args...), env, &out, &errOut,
				func(flags *pflag.FlagSet) discovery.Handler {
					flags.StringVar(&own, "own", "", "the handler's own flag")
					flags.Duration("every", time.Minute, "the handler's interval")
					return sees(true)
				})
			printed, other := &out, &errOut
			if status != 0 {
				printed, other = other, printed
			}
			if status != tc.want || other.Len() > 0 {
				t.Errorf("status %d, want %d; printed:\n%s\nerrors:\n%s", status, tc.want, &out, &errOut)
			}
			for _, part := range tc.text {
				if !strings.Contains(printed.String(), part) {
					t.Errorf("prints no %q:\n%s", part, printed.String())
				}
			}
			if name == "serves" && own != "x" {
				t.Errorf("the handler's own flag is %q", own)
			}
		})
	}
}
