package crilist

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// containerds is how much containerd's server sends in a message by default. Most tests
	// have less, for speed.
	containerds, limit = 16 << 20, 1 << 20

	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY

	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// server is a runtime's CRI, whose filters are as containerd's, over a real connection.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	// streams says that it has lists as streams; each ends after breaksAfter items with an
	// error if that is not 0.
	streams     bool
	breaksAfter int
	// limit is how much it sends in a message.
	limit int
	// part, if set, is called after each list of a part of the containers.
	part func()

	mu    sync.Mutex
	calls map[string]int
}

func (s *server) called(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
}

func (s *server) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	s.called("ListContainers")
	response := &runtimeapi.ListContainersResponse{}
	for _, c := range s.containers {
		if box := r.GetFilter().GetPodSandboxId(); box != "" && box != c.PodSandboxId {
			continue
		}
		if state := r.GetFilter().GetState(); state != nil && state.State != c.State {
			continue
		}
		response.Containers = append(response.Containers, proto.CloneOf(c))
	}
	if r.Filter != nil && s.part != nil {
		s.part()
	}
	return response, nil
}

func (s *server) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	s.called("ListPodSandbox")
	response := &runtimeapi.ListPodSandboxResponse{}
	for _, box := range s.sandboxes {
		if state := r.GetFilter().GetState(); state == nil || state.State == box.State {
			response.Items = append(response.Items, box)
		}
	}
	return response, nil
}

func (s *server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.called("PodSandboxStatus")
	for _, box := range s.sandboxes {
		if box.Id == r.PodSandboxId {
			return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: box.Id, State: box.State, Annotations: box.Annotations}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (s *server) StreamContainers(r *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	if !s.streams {
		return status.Error(codes.Unimplemented, "no streams")
	}
	for i, c := range s.containers {
		if s.breaksAfter > 0 && i == s.breaksAfter {
			return status.Error(codes.Internal, "half way")
		}
		if err := stream.Send(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{c}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	if !s.streams {
		return status.Error(codes.Unimplemented, "no streams")
	}
	for _, box := range s.sandboxes {
		if err := stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: []*runtimeapi.PodSandbox{box}}); err != nil {
			return err
		}
	}
	return nil
}

// client serves the runtime and connects to it.
func (s *server) client(t *testing.T) runtimeapi.RuntimeServiceClient {
	t.Helper()
	s.calls = map[string]int{}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxSendMsgSize(s.limit))
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4*s.limit)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// text returns an annotation that takes n sixteenths of the limit.
func (s *server) text(n int) map[string]string {
	return map[string]string{"a": strings.Repeat("x", n*s.limit/16)}
}

// add adds a sandbox with a container in it.
func (s *server) add(name string, state runtimeapi.PodSandboxState, annotations map[string]string, containers map[runtimeapi.ContainerState]map[string]string) {
	s.sandboxes = append(s.sandboxes, &runtimeapi.PodSandbox{Id: name, State: state, Annotations: annotations})
	for state, annotations := range containers {
		s.containers = append(s.containers, &runtimeapi.Container{Id: name + "-" + strings.ToLower(strings.TrimPrefix(state.String(), "CONTAINER_")),
			PodSandboxId: name, State: state, Annotations: annotations})
	}
}

type states = map[runtimeapi.ContainerState]map[string]string

func TestList(t *testing.T) {
	// What can run or run again: all containers of live, and those that run, or may, without their
	// sandbox. old's have ended for good.
	node := func(s *server, live, old int) {
		note := map[string]string{"pod": "annotation"}
		s.add("live", ready, note, states{running: nil, exited: nil, created: nil})
		s.add("outlived", notReady, note, states{running: nil, exited: nil, unknown: nil})
		for i := range old {
			s.add(fmt.Sprint("old", i), notReady, nil, states{exited: s.text(1)})
		}
		for i := range live {
			s.add(fmt.Sprint("big", i), ready, s.text(1), states{running: nil})
		}
	}
	for _, test := range []struct {
		name      string
		live, old int
		streams   bool
		limit     int // if another
		parts     bool
		most      map[string]int // calls
	}{
		{name: "fits", live: 2, old: 3, most: map[string]int{"ListContainers": 1, "ListPodSandbox": 1}},
		{name: "ended containers do not fit", limit: containerds, old: 20, parts: true, most: map[string]int{"ListContainers": 4, "ListPodSandbox": 1, "PodSandboxStatus": 1}},
		{name: "annotations of pods do not fit", live: 20, parts: true, most: map[string]int{"ListContainers": 1, "ListPodSandbox": 2, "PodSandboxStatus": 22}},
		{name: "neither fits", live: 20, old: 15, parts: true},
		{name: "neither fits, but there are streams", live: 20, old: 20, streams: true, most: map[string]int{"ListContainers": 1, "ListPodSandbox": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{streams: test.streams, limit: cmp.Or(test.limit, limit)}
			node(s, test.live, test.old)
			got, err := List(t.Context(), s.client(t))
			if err != nil {
				t.Fatal(err)
			}
			if got.Parts != test.parts {
				t.Errorf("in parts: %t", got.Parts)
			}
			want := []string{"live-created", "live-exited", "live-running", "outlived-running", "outlived-unknown"}
			for i := range test.live {
				want = append(want, fmt.Sprintf("big%d-running", i))
			}
			var useful []string
			seen := map[string]bool{}
			for _, c := range got.Containers {
				if seen[c.Id] {
					t.Errorf("container %s is listed twice", c.Id)
				}
				seen[c.Id] = true
				box := got.Sandboxes[c.PodSandboxId]
				if got.Usable(c) {
					useful = append(useful, c.Id)
				}
				if box.GetState() == ready && box.GetAnnotations() == nil {
					t.Errorf("the sandbox of container %s has lost its annotations", c.Id)
				}
			}
			slices.Sort(want)
			slices.Sort(useful)
			if diff := gocmp.Diff(want, useful); diff != "" {
				t.Errorf("containers that can run (-want +got):\n%s", diff)
			}
			if box := got.Sandboxes["outlived"]; box.GetState() != notReady || box.GetAnnotations()["pod"] != "annotation" {
				t.Errorf("the sandbox whose process has died: %v", box)
			}
			for method, n := range s.calls {
				if most := test.most[method]; test.most != nil && n > most {
					t.Errorf("%d calls of %s, want %d at most", n, method, most)
				}
			}
		})
	}
}

// A container whose state changes between two parts of the list is in one of them.
func TestAStateChangesMeanwhile(t *testing.T) {
	for _, change := range [][2]runtimeapi.ContainerState{{created, running}, {running, exited}, {running, unknown}} {
		for after := range 4 {
			s := &server{limit: limit}
			for i := range 10 { // so that neither list fits
				s.add(fmt.Sprint("big", i), ready, s.text(2), states{running: s.text(1), exited: s.text(1)})
			}
			s.add("pod", ready, nil, states{change[0]: nil})
			changing := s.containers[len(s.containers)-1]
			client := s.client(t)
			for range 3 {
				changing.State = change[0]
				parts := 0
				s.part = func() {
					if parts++; parts == after {
						changing.State = change[1]
					}
				}
				got, err := List(t.Context(), client)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(got.Containers,
					func(c *runtimeapi.Container) bool { return c.Id == changing.Id }) {
					t.Fatalf("a container that is %s, and %s after part %d, is not listed", change[0], change[1], after)
				}
			}
		}
	}
}

// A list that is not whole is none: the slots of what is missing would be given away.
func TestHalfAListIsAnError(t *testing.T) {
	for _, test := range []struct {
		name   string
		server *server
		says   []string
	}{
		{"one sandbox is too large", func() *server {
			s := &server{limit: limit}
			s.add("live", ready, nil, states{exited: s.text(17)})
			return s
		}(), []string{"of pod sandbox live", "max_send_message_size"}},
		{"what runs is too large", func() *server {
			s := &server{limit: limit}
			for i := range 17 {
				s.add(fmt.Sprint(i), ready, nil, states{running: s.text(1)})
			}
			return s
		}(), []string{"containers that run", "max_send_message_size"}},
		{"the stream breaks off", func() *server {
			s := &server{streams: true, breaksAfter: 3, limit: limit}
			for i := range 17 {
				s.add(fmt.Sprint(i), ready, nil, states{running: s.text(1)})
			}
			return s
		}(), []string{"half way"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := List(t.Context(), test.server.client(t))
			if err == nil {
				t.Fatalf("no error, and %v", slices.Sorted(maps.Keys(got.Sandboxes)))
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

// What is wrong with the runtime is no reason to ask it more.
func TestOtherErrorsAreReturned(t *testing.T) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(t.TempDir(), "none.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := List(t.Context(), runtimeapi.NewRuntimeServiceClient(conn)); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

// A runtime whose list fails for long is asked less and less, at least once a minute.
func TestRetries(t *testing.T) {
	backoff := Retries()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60} {
		want *= time.Second
		if got := backoff.Step(); got < want || got > want+want/10 {
			t.Errorf("wait %d is %s, want %s or a tenth more", i, got, want)
		}
	}
}
