package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// holder is one that was assigned the resources.
func holder(container string, from ...string) *pb.Holder {
	h := &pb.Holder{Namespace: "ns", Pod: "p", Uid: "uid", Container: container, AllocateFrom: map[string]string{}}
	for i, name := range from {
		h.AllocateFrom[fmt.Sprint("want/", i)] = name
	}
	return h
}

// What a plugin is sent: who is new, who changed, who is gone. Containers of other plugins are not
// its, and a device that the plugin misses is still held.
func TestHeldChanges(t *testing.T) {
	node := func(names ...types.ResourceName) *types.NodeInfo {
		n := types.NewNodeInfo()
		for _, name := range names {
			n.Capacity[name] = 1
		}
		return n
	}
	a, b, other := holder("a", "x"), holder("b", "foreign", "y"), holder("other", "foreign")
	for name, test := range map[string]struct {
		before       []*pb.Holder
		all          []*pb.Holder
		node         *types.NodeInfo
		new, release string
	}{
		"all":         {all: []*pb.Holder{b, other, a}, node: node("x", "y"), new: "a b"},
		"nothing new": {before: []*pb.Holder{a, b}, all: []*pb.Holder{a, b}, node: node("x", "y")},
		"one more":    {before: []*pb.Holder{a}, all: []*pb.Holder{a, b}, node: node("x", "y"), new: "b"},
		"one gone": {before: []*pb.Holder{a, b}, all: []*pb.Holder{b, other}, node: node("x", "y"),
			release: "a"},
		"assigned more": {before: []*pb.Holder{a}, all: []*pb.Holder{holder("a", "x", "y")}, node: node("x"),
			new: "a"},
		"a device is lost":  {before: []*pb.Holder{a}, all: []*pb.Holder{a, b}, node: node()},
		"a device is found": {before: []*pb.Holder{a}, all: []*pb.Holder{a, b}, node: node("y"), new: "b"},
		"the server ended":  {all: []*pb.Holder{a}},
	} {
		t.Run(name, func(t *testing.T) {
			had := types.NewNodeInfo()
			for _, name := range []types.ResourceName{"x", "y"} {
				had.Capacity[name] = 1
			}
			before, _ := held{}.changes(test.before, had)
			_, request := before.changes(test.all, test.node)
			if got := containers(request.GetHolders()); got != test.new {
				t.Errorf("new: %q, want %q", got, test.new)
			}
			if got := containers(request.GetReleased()); got != test.release {
				t.Errorf("released: %q, want %q", got, test.release)
			}
		})
	}
}

func containers(of []*pb.Holder) string {
	var names []string
	for _, h := range of {
		names = append(names, h.GetContainer())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// keeper serves a plugin that says that the node has x, and keeps what Held sends.
type keeper struct {
	plugin
	held chan *pb.HeldRequest // nil for one that does not read
}

func (k *keeper) Watch(_ *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.NodeState]) error {
	if err := stream.Send(&pb.NodeState{Capacity: map[string]int64{"x": 1}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (k *keeper) Held(stream grpc.ClientStreamingServer[pb.HeldRequest, pb.HeldResponse]) error {
	if k.held == nil {
		<-stream.Context().Done()
		return nil
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			k.held <- nil
			return err
		}
		k.held <- request
	}
}

// deviceRig runs Devices of Sockets, with the holders that a test sets.
type deviceRig struct {
	*Sockets
	mu      sync.Mutex
	holders []*pb.Holder
	known   bool
}

func (r *deviceRig) set(known bool, holders ...*pb.Holder) {
	r.mu.Lock()
	r.known, r.holders = known, holders
	r.mu.Unlock()
	r.HoldersChanged()
}

func runDevices(t *testing.T) *deviceRig {
	t.Helper()
	r := &deviceRig{}
	var err error
	config := setup{}.config(t)
	config.Added = func(p *Plugin) Handler {
		return &Device{Plugin: p, Node: "node-a", Wake: func() {}, Holders: func() ([]*pb.Holder, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.holders), r.known
		}}
	}
	r.Sockets, err = New(config)
	if err != nil {
		t.Fatal(err)
	}
	r.look = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func (r *deviceRig) serve(t *testing.T, name string, k *keeper) *grpc.Server {
	t.Helper()
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, k)
	pb.RegisterDeviceServer(server, k)
	go server.Serve(listen(t, r.Sockets, name))
	t.Cleanup(server.Stop)
	return server
}

func (k *keeper) next(t *testing.T) *pb.HeldRequest {
	t.Helper()
	return await.Next(t, "what is sent", k.held)
}

// A plugin gets the full set when it is connected, once that is known, then what changes, and again
// all after a restart.
func TestHeld(t *testing.T) {
	r := runDevices(t)
	k := &keeper{held: make(chan *pb.HeldRequest, 10)}
	server := r.serve(t, "a.sock", k)
	p := awaitReady(t, r.Sockets, "widget")
	r.set(true, holder("main", "x"), holder("other", "foreign"))
	want := &pb.HeldRequest{Holders: []*pb.Holder{{Namespace: "ns", Pod: "p", Uid: "uid", Container: "main",
		AllocateFrom: map[string]string{"want/0": "x"}}}}
	if diff := cmp.Diff(want, k.next(t), protocmp.Transform()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	r.set(true, holder("main", "x")) // which is nothing new
	r.set(true, holder("second", "x"))
	if got := k.next(t); containers(got.GetHolders()) != "second" || containers(got.GetReleased()) != "main" {
		t.Errorf("then %v", got)
	}
	server.Stop()
	if got := k.next(t); got != nil {
		t.Errorf("nothing changed, and %v is sent", got)
	}
	await.That(t, "it to be away", func() bool { return p.Away() != nil })
	r.set(true)
	r.serve(t, "a.sock", k)
	if got := k.next(t); len(got.GetHolders())+len(got.GetReleased()) != 0 {
		t.Errorf("after a restart %v, and none holds any", got)
	}
}

// A plugin that does not read what it is sent has nobody wait, and gets no more than it can take.
func TestHeldIsNotRead(t *testing.T) {
	r := runDevices(t)
	r.set(true)
	deaf := &keeper{}
	deaf.mark = "answers"
	deaf.info = widget()
	deaf.info.Name = "deaf"
	r.serve(t, "deaf.sock", deaf)
	k := &keeper{held: make(chan *pb.HeldRequest, 10)}
	r.serve(t, "a.sock", k)
	awaitReady(t, r.Sockets, "deaf")
	k.next(t)
	for i := range 3 {
		r.set(true, holder(strings.Repeat("x", 200<<10)+fmt.Sprint(i), "x"))
		k.next(t)
	}
	answers(t, awaitReady(t, r.Sockets, "deaf"), "answers")

	r.set(true, holder(strings.Repeat("x", maxSentBytes), "x"))
	if got := k.next(t); got != nil {
		t.Errorf("more than a plugin takes is sent: %d bytes", len(got.String()))
	}
	answers(t, awaitReady(t, r.Sockets, "widget"), "")
}
