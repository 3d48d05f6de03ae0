package proxy

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plainRuntime answers Version and nothing else.
type plainRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (plainRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
}

// What a small call costs, all in one process; test/perf/cri has the real thing.
func BenchmarkVersion(b *testing.B) {
	dir := b.TempDir()
	socket := filepath.Join(dir, "r.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, plainRuntime{})
	go server.Serve(l)
	defer server.Stop()
	direct, err := Dial(socket)
	if err != nil {
		b.Fatal(err)
	}
	defer direct.Close()
	p, err := New(Config{Runtime: direct})
	if err != nil {
		b.Fatal(err)
	}
	ours := filepath.Join(dir, "k.sock")
	kl, err := Listen(ours, socket)
	if err != nil {
		b.Fatal(err)
	}
	go p.Serve(b.Context(), kl)
	through, err := Dial(ours)
	if err != nil {
		b.Fatal(err)
	}
	defer through.Close()
	for _, way := range []struct {
		name string
		conn *grpc.ClientConn
	}{{"direct", direct}, {"kubecri", through}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			c := runtimeapi.NewRuntimeServiceClient(way.conn)
			for b.Loop() {
				if _, err := c.Version(b.Context(), &runtimeapi.VersionRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
