package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// run runs the server until the test or stop ends it.
func run(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { s.Run(ctx) })
	stop = func() {
		cancel()
		ended.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// soon ends after the deadline: the server must be there by then.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestRegistrationOverTheSocket(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Directory = filepath.Join(c.Directory, "not", "there") })
	_, changed := s.config.Registry.Sources("udev")
	stop := run(t, s)
	c := client(t, s)
	for _, request := range []*pb.RegisterDiscoveryHandlerRequest{
		{Name: "udev", Endpoint: "/var/lib/akri/udev.sock"},
		{Name: "udev", Endpoint: "http://10.0.0.5:10000", EndpointType: network},
		{Name: "udev", Endpoint: "/elsewhere/udev.sock"}, // the first one again
	} {
		if _, err := c.RegisterDiscoveryHandler(soon(t), request); err != nil {
			t.Fatal(err)
		}
	}
	await.Next(t, "the change of udev's sources", changed)
	var got []string
	for _, source := range sources(s, "udev") {
		got = append(got, source.ID)
		if source.BuiltIn {
			t.Errorf("source %s says that it is built in", source.ID)
		}
	}
	want := []string{"udev@" + s.config.Directory + "/udev.sock", "udev@http://10.0.0.5:10000"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sources are %q, want %q", got, want)
	}
	_, err := c.RegisterDiscoveryHandler(soon(t), &pb.RegisterDiscoveryHandlerRequest{
		Name: "udev", Endpoint: "dns:///10.0.0.5:10000", EndpointType: network})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "want http://host:port") {
		t.Errorf("registering another scheme is answered by %v, want the reason", err)
	}
	path := filepath.Join(s.config.Directory, pb.RegistrationSocket)
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v (%v), want 0600", info, err)
	}
	stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after the end there is still a socket (%v)", err)
	}
}

// The directory is the operator's: what is removed there comes back.
func TestTheSocketIsMadeAgain(t *testing.T) {
	s := newServer(t, nil)
	s.lookInterval = 10 * time.Millisecond
	run(t, s)
	if _, err := client(t, s).RegisterDiscoveryHandler(soon(t), &pb.RegisterDiscoveryHandlerRequest{Name: "a", Endpoint: "a.sock"}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.config.Directory); err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, s).RegisterDiscoveryHandler(soon(t), &pb.RegisterDiscoveryHandlerRequest{Name: "b", Endpoint: "b.sock"}); err != nil {
		t.Fatal(err)
	}
	if len(sources(s, "a"))+len(sources(s, "b")) != 2 {
		t.Error("a registration was lost with the socket")
	}
}

// Akri's agent may still be there: its handlers are not taken from it, until it ends.
func TestAnotherAgentsSocketIsLeftAlone(t *testing.T) {
	s := newServer(t, nil)
	s.lookInterval = 10 * time.Millisecond
	path := filepath.Join(s.config.Directory, pb.RegistrationSocket)
	other, err := unixsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	other.SetDeadline(time.Now().Add(await.Patience))
	for range 3 { // looks
		conn, err := other.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if err := other.Present(); err != nil {
		t.Fatalf("the other agent lost its socket: %v", err)
	}
	other.Close()
	if _, err := client(t, s).RegisterDiscoveryHandler(soon(t), &pb.RegisterDiscoveryHandlerRequest{Name: "a", Endpoint: "a.sock"}); err != nil {
		t.Fatal(err)
	}
}

// A flood of registrations ends few backoffs, and the last one of it is not lost.
func TestAFloodOfRegistrationsOfOneEndpoint(t *testing.T) {
	s := newServer(t, nil)
	run(t, s)
	source := register(t, s, "x", true)
	renewals, stop := make(chan time.Time, 100), make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		for renewed := source.Renewed(); ; renewed = source.Renewed() {
			select {
			case <-renewed:
				renewals <- time.Now()
			case <-stop:
				return
			}
		}
	})
	began := time.Now()
	var flood sync.WaitGroup
	for range 4 {
		c := client(t, s)
		ctx := soon(t)
		flood.Go(func() {
			for range 500 {
				if _, err := c.RegisterDiscoveryHandler(ctx, &pb.RegisterDiscoveryHandlerRequest{Name: "x", Endpoint: "x.sock", Shared: true}); err != nil {
					t.Errorf("refused: %v", err)
					return
				}
			}
		})
	}
	flood.Wait()
	ended := time.Now()
	last := await.Next(t, "a renewal", renewals)
	for last.Before(ended) {
		last = await.Next(t, "the renewal after the last registration", renewals)
	}
	ended = time.Now()
	register(t, s, "x", true)
	for last.Before(ended) {
		last = await.Next(t, "the renewal after one more registration", renewals)
	}
	close(stop)
	counting.Wait()
	if most := int(time.Since(began)/renewInterval) + 2; len(renewals) > most {
		t.Errorf("%d renewals more in %v", len(renewals), time.Since(began))
	}
	if n := len(sources(s, "x")); n != 1 {
		t.Errorf("%d sources", n)
	}
}

// A flood of endpoints pushes out itself, not the handlers that were there before it.
func TestAFloodOfEndpoints(t *testing.T) {
	const most = 8
	s := newServer(t, nil)
	s.maxEndpoints = most
	serveHandler(t, s, "used", sends(devices("a")))
	used, idle := register(t, s, "used", true), register(t, s, "idle", true)
	await.Next(t, "the report of the handler in use", start(t, used, discovery.Request{}).reports)
	for i := range 1000 {
		register(t, s, fmt.Sprintf("flood%d", i), true)
	}
	if len(s.endpoints) != most {
		t.Errorf("%d endpoints are known, want %d", len(s.endpoints), most)
	}
	for _, source := range []*discovery.Source{used, idle} {
		if got := sources(s, source.Handler.Name()); len(got) != 1 || got[0] != source {
			t.Errorf("the flood pushed out %s", source.ID)
		}
	}
	left := 0
	for i := range 1000 {
		left += len(sources(s, fmt.Sprintf("flood%d", i)))
	}
	if left != most-2 {
		t.Errorf("%d sources of the flood are left, want %d", left, most-2)
	}
}

func TestWithAllEndpointsInUseANewOneIsLeftOut(t *testing.T) {
	s := newServer(t, nil)
	s.maxEndpoints = 1
	serveHandler(t, s, "used", sends(devices("a")))
	used := start(t, register(t, s, "used", true), discovery.Request{})
	await.Next(t, "the report of the handler in use", used.reports)
	if err := s.register(klog.Background(), &pb.RegisterDiscoveryHandlerRequest{Name: "more", Endpoint: "more.sock"}); err != nil {
		t.Errorf("register() = %v: handlers end with an error, and there may be room later", err)
	}
	if len(sources(s, "more")) != 0 || len(sources(s, "used")) != 1 {
		t.Error("the new one took the place of one in use")
	}
	used.cancel()
	await.Next(t, "the end of the stream", used.done)
	register(t, s, "more", true)
}

// Handlers whose pods get another address each time leave endpoints behind.
func TestAnEndpointThatStaysUnreachableIsForgotten(t *testing.T) {
	s := newServer(t, func(c *Config) { c.ForgetAfter = 100 * time.Millisecond })
	source := register(t, s, "x", true)
	_, changed := s.config.Registry.Sources("x")
	fail := func() {
		t.Helper()
		await.Next(t, "the failure to connect", start(t, source, discovery.Request{}).done)
	}
	began := time.Now()
	fail()
	if len(sources(s, "x")) != 1 {
		t.Fatal("forgotten after one failure")
	}
	await.That(t, "the handler to be forgotten", func() bool {
		fail()
		return len(sources(s, "x")) == 0
	})
	if took := time.Since(began); took < s.config.ForgetAfter {
		t.Errorf("forgotten after %v", took)
	}
	await.Next(t, "the change of sources", changed)
	if again := register(t, s, "x", true); again == source {
		t.Error("the endpoint that registers again has the source that was removed")
	}
}

// What is reached now and then, or registers, stays.
func TestAnEndpointThatIsReachedIsNotForgotten(t *testing.T) {
	s := newServer(t, func(c *Config) { c.ForgetAfter = time.Nanosecond })
	source := register(t, s, "x", true)
	e := source.Handler.(*endpoint)
	e.unreachable()
	serveHandler(t, s, "x", sends(devices("a")))
	open := start(t, source, discovery.Request{})
	await.Next(t, "a report", open.reports)
	e.unreachable() // another Configuration's attempt failed
	s.forget(klog.Background(), e)
	if len(sources(s, "x")) != 1 {
		t.Error("forgotten while a stream is open")
	}
	e.renew(true)
	open.cancel()
	await.Next(t, "the end of the stream", open.done)
	s.forget(klog.Background(), e)
	if len(sources(s, "x")) != 1 {
		t.Error("forgotten though it registered again")
	}
}

// Clients that do not speak the protocol keep no handler from registering.
func TestGarbageKeepsNoHandlerOut(t *testing.T) {
	var dropped atomic.Int32
	s := newServer(t, func(c *Config) { c.Dropped = func() { dropped.Add(1) } })
	run(t, s)
	early := client(t, s)
	request := &pb.RegisterDiscoveryHandlerRequest{Name: "udev", Endpoint: "/var/lib/akri/udev.sock"}
	if _, err := early.RegisterDiscoveryHandler(soon(t), request); err != nil {
		t.Fatal(err)
	}
	const garbage = 10_000
	soon := soon(t)
	var open [1000]net.Conn // the last ones
	for i := range garbage {
		c, err := net.Dial("unix", filepath.Join(s.config.Directory, pb.RegistrationSocket))
		for errors.Is(err, syscall.EAGAIN) && soon.Err() == nil { // 4096 wait in the kernel
			c, err = net.Dial("unix", filepath.Join(s.config.Directory, pb.RegistrationSocket))
		}
		if err != nil {
			t.Fatal(err)
		}
		if old := open[i%len(open)]; old != nil {
			old.Close()
		}
		open[i%len(open)] = c
		defer c.Close()
		_, _ = io.WriteString(c, []string{"", "PRI * HTTP/2.0\r\n", "garbage"}[i%3]) // it may be closed
	}
	for _, c := range []pb.RegistrationClient{early, client(t, s)} {
		if _, err := c.RegisterDiscoveryHandler(soon, request, grpc.WaitForReady(true)); err != nil {
			t.Error(err)
		}
	}
	if dropped.Load() == 0 {
		t.Error("no connection was dropped")
	}
}
