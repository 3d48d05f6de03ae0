package proxy

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// named is a peer that answers every method of every service with its name.
func named(t *testing.T, name string) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), name+".sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		return status.Error(codes.Aborted, name)
	}))
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Which of two peers a method reaches: unary, streaming and intercepted ones, of
// this CRI and of others.
func TestImageServiceOnAnotherSocket(t *testing.T) {
	runtime, images := named(t, "runtime"), named(t, "images")
	intercepted := "/runtime.v1.ImageService/RemoveImage"
	p, err := New(Config{Runtime: runtime, Images: images, Interceptors: map[string]Interceptor{
		intercepted: func(_ context.Context, _ []byte, forward Forward) error { _, err := forward(nil); return err }}})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "k.sock")
	l, err := Listen(socket, filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := map[string]string{}
	want := map[string]string{
		runtimeapi.ImageService_ListImages_FullMethodName: "images",
		runtimeapi.ImageService_PullImage_FullMethodName:  "images",
		intercepted:                                                 "images",
		"/runtime.v1.ImageService/StreamImages":                     "images",
		"/runtime.v2.ImageService/Future":                           "images",
		"/runtime.v1.NotImageService/ListImages":                    "runtime",
		"/other.v1.ImageService/ListImages":                         "runtime",
		"/future.v1.Echo/Chat":                                      "runtime",
		runtimeapi.RuntimeService_Version_FullMethodName:            "runtime",
		runtimeapi.RuntimeService_CreateContainer_FullMethodName:    "runtime",
		runtimeapi.RuntimeService_GetContainerEvents_FullMethodName: "runtime",
	}
	for method := range want {
		err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.Aborted {
			t.Errorf("%s: %v, want the peer's answer", method, err)
		}
		got[method] = status.Convert(err).Message()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who was asked (-want +got):\n%s", diff)
	}
}
