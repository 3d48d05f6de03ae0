package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
)

func TestUnaryCallsOfBothServices(t *testing.T) {
	c := newChain(t, nil)
	version, err := c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{Version: "v1"})
	if err != nil || version.RuntimeName != "fake" {
		t.Errorf("Version = %v, %v", version, err)
	}
	images, err := c.imageClient.ListImages(c.ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(images.Images) != 1 {
		t.Errorf("ListImages = %v, %v", images, err)
	}
}

func TestMetadataHeadersAndTrailersPassBothWays(t *testing.T) {
	c := newChain(t, nil)
	for _, method := range []string{"unary", "intercepted"} {
		t.Run(method, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(c.ctx, "traceparent", "00-abc", "many", "1", "many", "2", "raw-bin", "\x00\xff")
			var header, trailer metadata.MD
			var err error
			opts := []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer)}
			if method == "unary" {
				_, err = c.runtimeClient.Version(ctx, &runtimeapi.VersionRequest{}, opts...)
			} else {
				_, err = c.runtimeClient.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{}, opts...)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := metadata.MD{"traceparent": {"00-abc"}, "many": {"1", "2"}, "raw-bin": {"\x00\xff"}}
			got := c.runtime.lastMetadata()
			for key, values := range want {
				if !cmp.Equal(got[key], values) {
					t.Errorf("the runtime saw %s = %q, want %q", key, got[key], values)
				}
			}
			if got := header.Get("from-runtime"); !cmp.Equal(got, []string{"h"}) {
				t.Errorf("header from-runtime = %q", got)
			}
			if got := trailer.Get("after-runtime"); !cmp.Equal(got, []string{"t"}) {
				t.Errorf("trailer after-runtime = %q", got)
			}
		})
	}
}

func TestDeadlinePasses(t *testing.T) {
	c := newChain(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	if _, err := c.runtimeClient.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	if left := c.runtime.lastDeadline(); left < 2*time.Hour || left > 3*time.Hour {
		t.Errorf("the runtime has %s left of 3h", left)
	}
}

func TestStatusPassesWithDetails(t *testing.T) {
	c := newChain(t, nil)
	want, err := status.New(codes.ResourceExhausted, "no, because ✗").WithDetails(&runtimeapi.Image{Id: "why"})
	if err != nil {
		t.Fatal(err)
	}
	c.runtime.fail.Store(want)
	for name, call := range map[string]func() error{
		"unary": func() error {
			_, err := c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{})
			return err
		},
		"intercepted": func() error {
			_, err := c.runtimeClient.CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{})
			return err
		},
		"streaming": func() error {
			stream, err := c.runtimeClient.GetContainerEvents(c.ctx, &runtimeapi.GetEventsRequest{})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
	} {
		if diff := cmp.Diff(want.Proto(), status.Convert(call()).Proto(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: status (-want +got):\n%s", name, diff)
		}
	}
}

// The kubelet falls back to another call on Unimplemented.
func TestUnimplementedComesFromTheRuntime(t *testing.T) {
	c := newChain(t, nil)
	_, err := c.runtimeClient.RuntimeConfig(c.ctx, &runtimeapi.RuntimeConfigRequest{})
	direct := c.direct(t)
	_, want := runtimeapi.NewRuntimeServiceClient(direct).RuntimeConfig(c.ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(err) != codes.Unimplemented || err.Error() != want.Error() {
		t.Errorf("got %v, want %v", err, want)
	}
	for _, method := range []string{"/runtime.v1.RuntimeService/Future", "/runtime.v7.Other/Call"} {
		err := c.conn.Invoke(c.ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
		want := direct.Invoke(c.ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.Unimplemented || err.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", method, err, want)
		}
	}
}

// A call of a later CRI goes through, in every streaming form, with fields that
// nobody here knows.
func TestUnknownServiceIsForwarded(t *testing.T) {
	c := newChain(t, nil)
	message := &emptypb.Empty{}
	message.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), "hello"))
	stream, err := c.conn.NewStream(c.ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/future.v1.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := stream.SendMsg(message); err != nil {
			t.Fatal(err)
		}
		got := &emptypb.Empty{}
		if err := stream.RecvMsg(got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, message) {
			t.Errorf("got %v, want %v", got, message)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&emptypb.Empty{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the half-close: %v, want EOF", err)
	}
}

func TestLargeMessagesPassBothWays(t *testing.T) {
	c := newChain(t, nil)
	big := strings.Repeat("x", 17<<20)
	for range 2 { // the second round finds buffers of the first in the pool
		resp, err := c.runtimeClient.ExecSync(c.ctx, &runtimeapi.ExecSyncRequest{ContainerId: big})
		if err != nil {
			t.Fatal(err)
		}
		if string(resp.Stdout) != big {
			t.Fatalf("got %d bytes, want %d of what was sent", len(resp.Stdout), len(big))
		}
		created, err := c.runtimeClient.CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: big})
		if err != nil || created.ContainerId != big {
			t.Fatalf("intercepted: %d bytes, %v", len(created.GetContainerId()), err)
		}
	}
}

func TestStreamFlowsWhileItIsOpen(t *testing.T) {
	c := newChain(t, nil)
	stream, err := c.runtimeClient.GetContainerEvents(c.ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		c.runtime.events <- id
		got, err := stream.Recv()
		if err != nil || got.ContainerId != id {
			t.Fatalf("got %v, %v, want event of %s", got, err, id)
		}
	}
}

func TestCancellationReachesTheRuntimeAndLeavesNothing(t *testing.T) {
	c := newChain(t, nil)
	if _, err := c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithCancel(c.ctx)
		stream, err := c.runtimeClient.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		c.runtime.events <- "a"
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel()
		await.That(t, "the end of the runtime's stream", func() bool { return c.runtime.streams.Load() == 0 })
	}
	await.That(t, "the end of their goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

func TestRuntimeAbsentThenBack(t *testing.T) {
	dir := t.TempDir()
	c := newChainIn(t, dir, nil, false)
	// A call that waited for the runtime would end with c.ctx, and another code.
	_, err := c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("without a runtime: %v, want Unavailable", err)
	}
	version := func() bool {
		_, err := c.runtimeClient.Version(c.ctx, &runtimeapi.VersionRequest{})
		return err == nil
	}
	for range 2 {
		stop := c.runtime.serve(t, filepath.Join(dir, "runtime.sock"))
		await.That(t, "calls to pass once the runtime is back", version)
		stop()
		await.That(t, "calls to fail once it is gone", func() bool { return !version() })
	}
}

func TestInterceptorAppendsAndSeesTheOutcome(t *testing.T) {
	extra, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
		Config: &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "B", Value: []byte("2")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		response []byte
		err      error
	}
	seen := make(chan outcome, 1)
	c := newChain(t, func(_ context.Context, request []byte, forward Forward) error {
		response, err := forward(extra)
		seen <- outcome{bytes.Clone(response), err}
		return errors.New("of no account once forwarded")
	})
	_, err = c.runtimeClient.CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: "box",
		Config:       &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, env := range c.runtime.lastCreate().Config.Envs {
		keys = append(keys, env.Key)
	}
	if !cmp.Equal(keys, []string{"A", "B"}) {
		t.Errorf("the runtime got envs %q", keys)
	}
	var response runtimeapi.CreateContainerResponse
	if got := <-seen; got.err != nil || proto.Unmarshal(got.response, &response) != nil || response.ContainerId != "box" {
		t.Errorf("the interceptor saw %v", got)
	}
	c.runtime.fail.Store(status.New(codes.AlreadyExists, "taken"))
	if _, err := c.runtimeClient.CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("client got %v", err)
	}
	if got := <-seen; status.Code(got.err) != codes.AlreadyExists {
		t.Errorf("the interceptor saw %v", got.err)
	}
}

func TestInterceptorRefuses(t *testing.T) {
	for name, f := range map[string]Interceptor{
		"refused":   func(context.Context, []byte, Forward) error { return status.Error(codes.FailedPrecondition, "no slot") },
		"forgotten": func(context.Context, []byte, Forward) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t, f)
			_, err := c.runtimeClient.CreateContainer(c.ctx, &runtimeapi.CreateContainerRequest{})
			want := map[string]codes.Code{"refused": codes.FailedPrecondition, "forgotten": codes.Internal}[name]
			if status.Code(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if c.runtime.lastCreate() != nil {
				t.Error("the runtime was called")
			}
		})
	}
}

func TestStopDrainsCallsButNotEndlessStreams(t *testing.T) {
	c := newChain(t, nil)
	stream, err := c.runtimeClient.GetContainerEvents(c.ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c.runtime.events <- "a"
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	c.runtime.hold = make(chan struct{})
	go func() {
		_, err := c.runtimeClient.StopContainer(c.ctx, &runtimeapi.StopContainerRequest{})
		done <- err
	}()
	await.That(t, "the slow call to be in flight", func() bool { return c.runtime.slow.Load() == 1 })
	c.stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the events stream ended with %v, want Unavailable", err)
	}
	close(c.runtime.hold)
	if err := <-done; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	if err := <-c.served; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestStopCutsOffAtTheDeadline(t *testing.T) {
	c := newChain(t, nil)
	c.proxy.config.DrainTimeout = 10 * time.Millisecond
	c.runtime.hold = make(chan struct{})
	defer close(c.runtime.hold)
	done := make(chan error, 1)
	go func() {
		_, err := c.runtimeClient.StopContainer(c.ctx, &runtimeapi.StopContainerRequest{})
		done <- err
	}()
	await.That(t, "the slow call to be in flight", func() bool { return c.runtime.slow.Load() == 1 })
	c.stop()
	if err := <-done; err == nil {
		t.Error("the call in flight went on")
	}
	<-c.served
}

func (c *chain) direct(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///direct", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.runtimeSocket)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
