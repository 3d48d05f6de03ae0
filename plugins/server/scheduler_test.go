package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
	"github.com/kubeslot/kubeslot/types/resource"
)

// picky is a scheduler that writes all over what it is given, and fits pods on nodes with a count.
type picky struct {
	devicescheduler.DeviceScheduler
	mu    sync.Mutex
	nodes []string // that were added and not removed
}

func (p *picky) AddNode(name string, n *types.NodeInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes = append(p.nodes, name)
	clear(n.KubeCap)
}

func (p *picky) RemoveNode(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes = slices.DeleteFunc(p.nodes, func(n string) bool { return n == name })
}

func (p *picky) PodFitsDevice(n *types.NodeInfo, pod *types.PodInfo, _ bool) (
	bool, []devicescheduler.PredicateFailureReason, float64) {
	if len(pod.RunningContainers["main"].AllocateFrom) > 0 {
		panic("the pod of another call")
	}
	count := n.KubeCap["example.com/picky"]
	clear(n.KubeCap)
	if count == 0 {
		return false, []devicescheduler.PredicateFailureReason{nil,
			resource.NewInsufficientResourceError("example.com/picky", 3, -2, 1).NeverEnough()}, 7
	}
	p.write(pod)
	return true, nil, float64(count)
}

func (p *picky) PodAllocate(n *types.NodeInfo, pod *types.PodInfo) error {
	if n.KubeCap["example.com/picky"] == 0 {
		return errors.New("none is left")
	}
	p.write(pod)
	return nil
}

func (p *picky) write(pod *types.PodInfo) {
	pod.RunningContainers["main"].AllocateFrom["a"] = "b"
	pod.RunningContainers["main"].DevRequests["c"] = 1
	pod.RunningContainers["other"] = types.ContainerInfo{DevRequests: types.ResourceList{"x": 1}}
}

func (p *picky) GetName() string           { return "picky" }
func (p *picky) UsingGroupScheduler() bool { return true }

func (p *picky) knows() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(p.nodes)), " ")
}

func node(name string, n int64) *pb.NodeInfo {
	return &pb.NodeInfo{Name: name, KubeCapacity: map[string]int64{"example.com/picky": n}}
}

func TestScheduler(t *testing.T) {
	p := &picky{}
	conn, _ := serve(t, Scheduler(p, "example.com/*"), t.TempDir(), "picky.sock")
	client, ctx := pb.NewDeviceSchedulerClient(conn), timeout(t)
	start, err := client.Start(ctx, &pb.SchedulerStartRequest{})
	if err != nil || fmt.Sprint(start.GetResources()) != "[example.com/*]" || !start.GetUsesGroupScheduler() {
		t.Error(start, err)
	}
	pod := &pb.PodInfo{RunningContainers: map[string]*pb.ContainerInfo{"main": {}, "sidecar": {}}}
	send := func(s pb.DeviceScheduler_NodesClient, r *pb.NodesRequest) {
		t.Helper()
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Recv(); err != nil || got.GetRevision() != r.GetRevision() {
			t.Fatal(got, err)
		}
	}
	fit := func(session string, want codes.Code, names ...string) []*pb.Verdict {
		t.Helper()
		r := &pb.FitRequest{Pod: pod, Session: session, Names: names, Nodes: []*pb.NodeInfo{node("inline", 9)}}
		got, err := client.Fit(ctx, r)
		if status.Code(err) != want {
			t.Fatal(session, names, err)
		}
		return got.GetVerdicts()
	}
	open := func(session string, nodes ...*pb.NodeInfo) pb.DeviceScheduler_NodesClient {
		t.Helper()
		s, err := client.Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send(s, &pb.NodesRequest{Session: session, Revision: 1, Nodes: nodes})
		return s
	}
	one := open("one", node("a", 1), node("b", 0))
	two := open("two", node("a", 5))

	for range 2 { // what the plugin wrote the first time is not there the second
		got := fit("one", codes.OK, "a", "b")
		if len(got) != 3 || got[0].GetScore() != 1 || got[1].GetFits() || got[1].GetScore() != 0 ||
			got[2].GetScore() != 9 {
			t.Fatal(got)
		}
		changes := got[0].GetChanges().GetRunningContainers()
		if len(changes) != 2 || changes["main"].GetAllocateFrom()["a"] != "b" ||
			changes["main"].GetDevRequests()["c"] != 1 {
			t.Error(changes)
		}
		if r := got[1].GetReasons(); len(r) != 1 || !r[0].GetNever() ||
			r[0].GetText() != "Never enough example.com/picky" || r[0].GetRequested() != 3 || r[0].GetUsed() != 0 ||
			r[0].GetCapacity() != 1 {
			t.Error(r)
		}
	}
	if got := fit("two", codes.OK, "a"); got[0].GetScore() != 5 {
		t.Error("the sessions are mixed up:", got)
	}
	fit("two", codes.FailedPrecondition, "b")
	fit("three", codes.FailedPrecondition, "a")
	send(one, &pb.NodesRequest{Session: "one", Revision: 2, Nodes: []*pb.NodeInfo{node("b", 2)},
		Removed: []string{"a"}})
	fit("one", codes.FailedPrecondition, "a")
	if got := fit("one", codes.OK, "b"); got[0].GetScore() != 2 {
		t.Error(got)
	}
	if err := one.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Recv(); err == nil {
		t.Error("the stream goes on")
	}
	fit("one", codes.FailedPrecondition, "b")
	if p.knows() != "a a" { // of session two, and added twice
		t.Errorf("the plugin knows %q", p.knows())
	}
	two.CloseSend()
	await.That(t, "the plugin to know no pod", func() bool { return p.knows() == "" })

	allocated, err := client.Allocate(ctx, &pb.AllocateRequest{Pod: pod, Node: node("n", 1)})
	if err != nil || allocated.GetChanges().GetRunningContainers()["main"].GetAllocateFrom()["a"] != "b" {
		t.Error(allocated, err)
	}
	_, err = client.Allocate(ctx, &pb.AllocateRequest{Pod: pod, Node: node("n", 0)})
	if status.Convert(err).Message() != "none is left" {
		t.Error(err)
	}
}
