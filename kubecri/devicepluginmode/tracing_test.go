package devicepluginmode

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/kubeslot/kubeslot/kubecri/tracing"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// spans is a collector that keeps the names of the spans that it gets.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	names []string
}

func (s *spans) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				s.names = append(s.names, span.Name)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// What the kubelet is given, and what is released, has spans as in the other modes.
func TestSpans(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got, server := &spans{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	tracer, err := tracing.New(t.Context(), tracing.Config{Endpoint: listener.Addr().String(),
		SamplingRatePerMillion: 1_000_000, Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRigWith(t, newAPI(), "a", akriv0.ConfigurationSpec{}, func(c *Config) { c.Tracer = tracer }, "east")
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatal(err)
	}
	r.step(2 * settling)
	for range 2 { // nothing is released the second time
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tracer.Shutdown(t.Context())
	if want := []string{"Allocate", "ReleaseClaims"}; !slices.Equal(got.names, want) {
		t.Errorf("spans %q, want %q", got.names, want)
	}
}
