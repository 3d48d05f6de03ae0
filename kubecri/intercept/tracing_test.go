package intercept

import (
	"context"
	"encoding/hex"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
)

// spans is an OpenTelemetry collector.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	from string // the service's name
	got  map[string]*otlp.Span
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				s.from = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				s.got[span.Name] = span
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// tracedRuntime notes what metadata containers are created with.
type tracedRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	md chan metadata.MD
}

func (r tracedRuntime) CreateContainer(ctx context.Context, _ *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r.md <- md
	return &runtimeapi.CreateContainerResponse{ContainerId: "c1"}, nil
}

func (tracedRuntime) RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func serve(t *testing.T, network, address string, register func(*grpc.Server)) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr()
}

// A kubelet's trace goes on in our spans, as a collector gets them, and to the
// runtime as it came.
func TestSpansContinueTheKubeletsTrace(t *testing.T) {
	dir := t.TempDir()
	got := &spans{got: map[string]*otlp.Span{}}
	address := serve(t, "tcp", "127.0.0.1:0", func(s *grpc.Server) { collector.RegisterTraceServiceServer(s, got) })
	runtime := tracedRuntime{md: make(chan metadata.MD, 1)}
	serve(t, "unix", filepath.Join(dir, "runtime.sock"), func(s *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(s, runtime) })

	tracer, err := tracing.New(t.Context(), tracing.Config{Endpoint: address.String(), SamplingRatePerMillion: 1_000_000, Node: admittest.Node})
	if err != nil {
		t.Fatal(err)
	}
	w := admittest.NewWorld(t, nil, func(c *claims.Config) { c.Tracer = tracer })
	admitter, err := admit.New(admit.Config{Node: admittest.Node, Pods: w.Pods, Claims: w.Claims, DeviceTimeout: time.Second, Tracer: tracer,
		Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := proxy.Dial(filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := proxy.New(proxy.Config{Runtime: conn, Interceptors: New(admitter, w.Claims, tracer)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := proxy.Listen(filepath.Join(dir, "kubecri.sock"), filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	kubelet, err := proxy.Dial(filepath.Join(dir, "kubecri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()

	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	sent := metadata.Pairs("traceparent", "00-"+trace+"-"+parent+"-01", "tracestate", "k=v", "baggage", "a=b")
	call := metadata.NewOutgoingContext(t.Context(), sent)
	client := runtimeapi.NewRuntimeServiceClient(kubelet)
	_, err = client.CreateContainer(call, &runtimeapi.CreateContainerRequest{PodSandboxId: "box",
		Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Annotations: admittest.Assigned(admittest.Good),
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: admittest.Pod.Namespace, Name: admittest.Pod.Name, Uid: admittest.Pod.UID}}})
	if err != nil {
		t.Fatal(err)
	}
	md := <-runtime.md
	for key, values := range sent {
		if diff := cmp.Diff(values, md[key]); diff != "" {
			t.Errorf("what the runtime got as %s (-want +got):\n%s", key, diff)
		}
	}
	if _, err := client.RemoveContainer(call, &runtimeapi.RemoveContainerRequest{ContainerId: "c1"}); err != nil {
		t.Fatal(err)
	}
	w.WantUsage(t, "")
	w.Stop() // its last span has ended then
	tracer.Shutdown(t.Context())

	got.mu.Lock()
	defer got.mu.Unlock()
	if got.from != "kubecri" {
		t.Errorf("spans are from service %q", got.from)
	}
	create := got.got["CreateContainer"]
	if create == nil {
		t.Fatalf("no span of CreateContainer: %v", got.got)
	}
	id := hex.EncodeToString(create.SpanId)
	for name, parentID := range map[string]string{"CreateContainer": parent, "Decide": id, "FindDevices": id, "Claim": id, "Forward": id, "RemoveContainer": parent} {
		span := got.got[name]
		if span == nil {
			t.Errorf("no span %s", name)
			continue
		}
		if hex.EncodeToString(span.TraceId) != trace || hex.EncodeToString(span.ParentSpanId) != parentID {
			t.Errorf("span %s is of trace %x under %x, want %s under %s", name, span.TraceId, span.ParentSpanId, trace, parentID)
		}
	}
	released := got.got["ReleaseClaims"]
	if released == nil || len(released.ParentSpanId) != 0 {
		t.Fatalf("the release's span: %v, want one that begins a trace", released)
	}
	about := map[string]string{}
	for _, span := range []*otlp.Span{create, got.got["Claim"], released} {
		for _, a := range span.Attributes {
			about[span.Name+" "+a.Key] = a.Value.GetStringValue()
			for _, v := range a.Value.GetArrayValue().GetValues() {
				about[span.Name+" "+a.Key] = v.GetStringValue()
			}
		}
	}
	want := map[string]string{
		"CreateContainer k8s.namespace.name": "ns", "CreateContainer k8s.pod.name": "cams", "CreateContainer k8s.pod.uid": "u1", "CreateContainer k8s.container.name": "main",
		"Claim kubeslot.slots": "cam-a1-0", "ReleaseClaims kubeslot.instance": "cam-a1", "ReleaseClaims kubeslot.slots": "cam-a1-0",
	}
	if diff := cmp.Diff(want, about); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}
