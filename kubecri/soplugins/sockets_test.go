package soplugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// widgets serves the node's half of a plugin.
type widgets struct {
	registration.UnimplementedRegistrationServer
	pb.UnimplementedDeviceServer
	states   chan *pb.NodeState // what Watch sends
	endless  func(i int) *pb.NodeState
	allocate func(context.Context, *pb.DeviceAllocateRequest) (*pb.DeviceAllocateResponse, error)
}

func (w *widgets) GetInfo(context.Context, *registration.GetInfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Name: "widgets", Half: registration.Half_DEVICE,
		SupportedVersions: []string{pb.Version}}, nil
}

func (w *widgets) OwnVariables(context.Context, *pb.OwnVariablesRequest) (*pb.OwnVariablesResponse, error) {
	return &pb.OwnVariablesResponse{Variables: map[string]string{"WIDGETS": "void"}}, nil
}

func (w *widgets) Watch(_ *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.NodeState]) error {
	for i := 0; ; i++ {
		state := &pb.NodeState{}
		if w.endless != nil {
			state = w.endless(i)
		} else {
			select {
			case <-stream.Context().Done():
				return nil
			case state = <-w.states:
			}
		}
		if err := stream.Send(state); err != nil {
			return err
		}
	}
}

func (w *widgets) Allocate(ctx context.Context, r *pb.DeviceAllocateRequest) (*pb.DeviceAllocateResponse, error) {
	if w.allocate != nil {
		return w.allocate(ctx, r)
	}
	pod := r.GetPod()
	from := pod.GetRunningContainers()[r.GetContainer()].GetAllocateFrom()["want/0"]
	return &pb.DeviceAllocateResponse{Env: map[string]string{"WIDGETS": strings.Join(
		[]string{pod.GetNamespace(), pod.GetUid(), pod.GetName(), r.GetContainer(), from}, " ")}}, nil
}

// has is a state in which the node has one of each.
func has(names ...string) *pb.NodeState {
	state := &pb.NodeState{Capacity: map[string]int64{}, Allocatable: map[string]int64{}}
	for _, name := range names {
		state.Capacity[name], state.Allocatable[name] = 1, 1
	}
	return state
}

// sockets are running Plugins of a folder of sockets.
type sockets struct {
	*Plugins
	folder string
	events *record.FakeRecorder
	run    func() // which the first serve calls
}

func startSockets(t *testing.T, policies map[string]string, timeout time.Duration) *sockets {
	t.Helper()
	folder, err := os.MkdirTemp("", "sockets") // t.TempDir's are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	s := &sockets{folder: folder, events: record.NewFakeRecorder(100)}
	s.Plugins, err = New(Config{Node: "node-a", Interval: time.Hour, Events: s.events,
		Remote: remote.Options{Sockets: folder, Policies: policies, Timeout: timeout}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	s.run = sync.OnceFunc(func() {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		t.Cleanup(func() { cancel(); <-ended })
	})
	return s
}

// serve serves the plugin at a new socket in place of the last one.
func (s *sockets) serve(t *testing.T, w *widgets) *grpc.Server {
	t.Helper()
	path := filepath.Join(s.folder, "widgets.sock")
	l, err := net.Listen("unix", path+".new")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true)) // one that has ended takes no state of w
	registration.RegisterRegistrationServer(server, w)
	pb.RegisterDeviceServer(server, w)
	go server.Serve(l)
	s.run()
	t.Cleanup(server.Stop)
	return server
}

func (s *sockets) awaitNode(t *testing.T, want ...types.ResourceName) {
	t.Helper()
	await.That(t, fmt.Sprintf("the node to have %v", want), func() (bool, string) {
		info, _ := s.NodeInfo()
		lacks := slices.ContainsFunc(want, func(name types.ResourceName) bool { return info.Allocatable[name] != 1 })
		return !lacks && len(info.Allocatable) == len(want), fmt.Sprint(info.Allocatable)
	})
}

func (s *sockets) awaitEvent(t *testing.T, parts ...string) {
	t.Helper()
	e := await.Next(t, fmt.Sprintf("an event %q", parts), s.events.Events)
	for _, part := range parts {
		if !strings.Contains(e, part) {
			t.Errorf("event %q lacks %q", e, part)
		}
	}
}

// ofPod is assigned, of a pod with all its names.
func ofPod(from ...types.ResourceName) *types.PodInfo {
	pod := assigned(from...)
	pod.Namespace, pod.UID = "ns", "uid"
	return pod
}

// A plugin comes, says what the node has, changes it, goes, and is back with less.
func TestSocketsLife(t *testing.T) {
	s := startSockets(t, nil, remote.DefaultDeviceTimeout)
	w := &widgets{states: make(chan *pb.NodeState, 1)}
	w.states <- has("x", "y")
	server := s.serve(t, w)
	s.awaitNode(t, "x", "y")
	edits, err := s.Allocate(t.Context(), ofPod("x"), "main")
	if err != nil || len(edits) != 1 || variable(edits[0], "WIDGETS") != "ns uid p main x" {
		t.Error(edits, err)
	}
	w.states <- has("x", "y", "z") // and nobody asks for an hour
	s.awaitNode(t, "x", "y", "z")
	server.Stop()
	s.awaitEvent(t, `Warning DevicePluginFailed device plugin "widgets" is away since `, "--plugin-policy=widgets=ignore")
	s.awaitNode(t, "x", "y", "z")
	_, err = s.Allocate(t.Context(), ofPod("x"), "main")
	wantError(t, err, `device plugin "widgets" cannot be asked now: plugin "widgets" is away`)
	w.states <- has("x")
	s.serve(t, w)
	s.awaitNode(t, "x")
	s.awaitEvent(t, `Normal DevicePluginRecovered`)
	_, err = s.Allocate(t.Context(), ofPod("y"), "main")
	wantError(t, err, "") // it answers, also for what it does not name any more
}

// A container right after kubecri's start waits for a plugin whose socket is there, and does not
// pass one that the flag names and that is not there.
func TestSocketsRightAfterStart(t *testing.T) {
	s := startSockets(t, map[string]string{"missing": remote.Required}, remote.DefaultDeviceTimeout)
	_, err := s.Allocate(t.Context(), ofPod("x"), "main")
	wantError(t, err, `device plugin "missing" cannot be asked now: plugin "missing" is away`)
	wantError(t, s.Failing(), `plugin "missing" is away since`)

	s = startSockets(t, nil, remote.DefaultDeviceTimeout)
	w := &widgets{states: make(chan *pb.NodeState, 1)}
	w.states <- has("x")
	s.serve(t, w) // as early as kubecri
	await.That(t, "an answer", func() error {
		s.Tried(t.Context())
		_, err := s.Allocate(t.Context(), ofPod("x"), "main")
		return err
	})
}

// What a plugin may not say leaves the node as it was, and says so.
func TestSocketsHostileStates(t *testing.T) {
	negative, slots := has(), has("akri.sh/cam")
	negative.Capacity["x"] = -1
	many := has()
	for i := range 20_000 { // below 1 MiB
		many.Allocatable[fmt.Sprintf("resource/%d", i)] = 1
	}
	huge := has()
	for i := range 100_000 {
		huge.Allocatable[fmt.Sprintf("resource/of/a/long/name/%d", i)] = 1
	}
	for name, test := range map[string]struct {
		state *pb.NodeState
		says  string
	}{
		"negative":  {negative, `it says that the node has -1 of "x"`},
		"slots":     {slots, `"akri.sh/cam": slots come from Instances alone`},
		"many":      {many, "the names of the node's resources take"},
		"too large": {huge, `is away since`}, // the stream ends
	} {
		t.Run(name, func(t *testing.T) {
			s := startSockets(t, nil, remote.DefaultDeviceTimeout)
			w := &widgets{states: make(chan *pb.NodeState, 1)}
			w.states <- has("good")
			s.serve(t, w)
			s.awaitNode(t, "good")
			w.states <- test.state
			s.awaitEvent(t, "DevicePluginFailed", test.says)
			s.awaitNode(t, "good")
		})
	}
}

// A plugin that never stops saying something new is read so often, and the node has its last word.
func TestSocketsEndlessWatch(t *testing.T) {
	s := startSockets(t, nil, remote.DefaultDeviceTimeout)
	began, sent := time.Now(), make(chan struct{}, 1<<20)
	s.serve(t, &widgets{endless: func(i int) *pb.NodeState {
		sent <- struct{}{}
		state := has()
		state.Allocatable["x"] = int64(i)
		state.Allocatable[strings.Repeat("x", 60<<10)] = 1
		return state
	}})
	await.That(t, "the last state", func() (bool, string) {
		info, _ := s.NodeInfo()
		return info.Allocatable["x"] >= 4, fmt.Sprint(info.Allocatable)
	})
	n, took := len(sent), time.Since(began)
	if took < 700*time.Millisecond {
		t.Errorf("five states in %s", took)
	}
	if most := 45 + int(took/(200*time.Millisecond)); n > most { // as many are read, and some are on the way
		t.Errorf("%d states were sent within %s, and a plugin is to wait", n, took)
	}
}

// Answers of Allocate that never come or are too large, and what may not be in them.
func TestSocketsHostileAnswers(t *testing.T) {
	const soon, late = 300 * time.Millisecond, time.Minute
	type answer = pb.DeviceAllocateResponse
	for name, test := range map[string]struct {
		answer *answer // nil for never
		says   string
	}{
		"never":         {nil, `device plugin "widgets" failed in Allocate: did not return in time: 300ms`},
		"16 MB":         {&answer{Env: map[string]string{"A": strings.Repeat("x", 16<<20)}}, "larger than max"},
		"the root":      {&answer{Mounts: []*pb.Mount{{HostPath: "/", ContainerPath: "/"}}}, "the container's root"},
		"no device":     {&answer{DeviceNodes: []string{"/etc/passwd"}}, "not a device node"},
		"no CDI device": {&answer{CdiDevices: []string{"gpu"}}, "CDI name"},
		"no variable":   {&answer{Env: map[string]string{"A=B": "1"}}, "the variable"},
		"nothing":       {&answer{}, "gives nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := late
			if test.answer == nil {
				timeout = soon
			}
			s := startSockets(t, nil, timeout)
			w := &widgets{endless: func(int) *pb.NodeState { return has("x") }}
			w.allocate = func(context.Context, *pb.DeviceAllocateRequest) (*pb.DeviceAllocateResponse, error) {
				if test.answer == nil {
					<-t.Context().Done() // and not at the call's deadline, which this side may see first
					return nil, errors.New("never")
				}
				return test.answer, nil
			}
			s.serve(t, w)
			s.awaitNode(t, "x")
			_, err := s.Allocate(t.Context(), ofPod("x"), "main")
			wantError(t, err, test.says)
			if test.answer != nil {
				return
			}
			const away = "its last calls each did not return in time"
			await.That(t, "it to be away", func() (bool, string) {
				_, err := s.Allocate(t.Context(), ofPod("x"), "main")
				text := fmt.Sprint(err)
				return strings.Contains(text, away), text
			})
			s.awaitEvent(t, `DevicePluginFailed device plugin "widgets" is away since`, away)
			await.That(t, "it to be tried again", func() (bool, string) {
				_, err := s.Allocate(t.Context(), ofPod("x"), "main")
				text := fmt.Sprint(err)
				return strings.Contains(text, "failed in Allocate"), text
			})
			if len(s.events.Events) > 0 {
				t.Errorf("once more: %s", <-s.events.Events)
			}
			s.awaitNode(t, "x")
		})
	}
}
