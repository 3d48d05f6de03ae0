package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

const gadget types.ResourceName = "example.com/gadget"

// half is a server of a scheduler's half: a node fits a pod if it has that many gadgets left.
type half struct {
	registration.UnimplementedRegistrationServer
	pb.UnimplementedDeviceSchedulerServer
	group    bool
	lie      func(*pb.FitResponse)
	hang     chan struct{} // Fit does not answer until it is closed
	pause    time.Duration // Fit answers after that
	unapply  bool          // Nodes answers nothing
	revision int64         // Nodes answers it, if it is not 0
	starts   chan struct{} // Start, if it is not nil, sends to it and is answered when that is received twice

	mu    sync.Mutex
	nodes map[string]*pb.NodeInfo
	fits  []*pb.FitRequest
	dues  []time.Time // of the Fits
}

func (*half) GetInfo(context.Context, *registration.GetInfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Name: "gadget", Half: registration.Half_SCHEDULER,
		SupportedVersions: []string{pb.Version}}, nil
}

func (p *half) Start(context.Context, *pb.SchedulerStartRequest) (*pb.SchedulerStartResponse, error) {
	if p.starts != nil {
		p.starts <- struct{}{}
		p.starts <- struct{}{}
	}
	return &pb.SchedulerStartResponse{Resources: []string{"example.com/gad*"}, UsesGroupScheduler: p.group}, nil
}

func (p *half) Nodes(stream grpc.BidiStreamingServer[pb.NodesRequest, pb.NodesResponse]) error {
	p.mu.Lock()
	p.nodes = map[string]*pb.NodeInfo{}
	p.mu.Unlock()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p.mu.Lock()
		for _, n := range m.GetNodes() {
			p.nodes[n.GetName()] = n
		}
		for _, name := range m.GetRemoved() {
			delete(p.nodes, name)
		}
		p.mu.Unlock()
		if p.unapply {
			continue
		}
		answer := &pb.NodesResponse{Revision: m.GetRevision()}
		if p.revision != 0 {
			answer.Revision = p.revision
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (p *half) Fit(ctx context.Context, request *pb.FitRequest) (*pb.FitResponse, error) {
	if p.hang != nil {
		select {
		case <-p.hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	<-time.After(p.pause)
	due, _ := ctx.Deadline()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fits, p.dues = append(p.fits, request), append(p.dues, due)
	answer := &pb.FitResponse{}
	nodes := make([]*pb.NodeInfo, 0, len(request.GetNames())+len(request.GetNodes()))
	for _, name := range request.GetNames() {
		nodes = append(nodes, p.nodes[name])
	}
	for _, n := range append(nodes, request.GetNodes()...) {
		left := n.GetAllocatable()[string(gadget)] - n.GetUsed()[string(gadget)]
		requested := request.GetPod().GetRunningContainers()["main"].GetRequests()[string(gadget)]
		v := &pb.Verdict{Fits: left >= requested, Score: float64(left)}
		if !v.Fits {
			v.Reasons = []*pb.Reason{{Resource: string(gadget), Requested: 1, Capacity: left}}
		}
		answer.Verdicts = append(answer.Verdicts, v)
	}
	if p.lie != nil {
		p.lie(answer)
	}
	return answer, nil
}

func (p *half) Allocate(_ context.Context, request *pb.AllocateRequest) (*pb.AllocateResponse, error) {
	from := map[string]string{}
	for i := range request.GetPod().GetRunningContainers()["main"].GetRequests()[string(gadget)] {
		from[fmt.Sprintf("%s/%d", gadget, i)] = string(gadget)
	}
	return &pb.AllocateResponse{Changes: &pb.PodChanges{
		RunningContainers: map[string]*pb.ContainerChanges{"main": {AllocateFrom: from}}}}, nil
}

// asked returns how many nodes were named in the calls of Fit since the last time, and how many
// were whole.
func (p *half) asked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, f := range p.fits {
		all = append(all, fmt.Sprintf("%d+%d", len(f.GetNames()), len(f.GetNodes())))
	}
	p.fits = nil
	return strings.Join(all, " ")
}

func (p *half) has(node string) (n *pb.NodeInfo, known int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[node], len(p.nodes)
}

// rig is a host with a plugin over gRPC.
type rig struct {
	*testing.T
	host    *host.Host
	sockets *Sockets
	log     func() string
	plugin  *Plugin

	mu         sync.Mutex
	schedulers map[*Plugin]*Scheduler
	faults     []host.FaultKind
}

func newRig(t *testing.T, p *half) *rig {
	t.Helper()
	r := &rig{T: t, schedulers: map[*Plugin]*Scheduler{}}
	timeout := await.Patience
	if p != nil && p.hang != nil { // which is waited for
		timeout = 500 * time.Millisecond
	}
	var err error
	if r.host, err = host.New(nil, host.Options{OnFault: func(f *host.Fault) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.faults = append(r.faults, f.Kind)
	}}); err != nil {
		t.Fatal(err)
	}
	r.sockets, r.log = runLogged(t, setup{half: registration.Half_SCHEDULER, timeout: timeout,
		added: func(p *Plugin) {
			s, err := NewScheduler(r.host, p)
			if err != nil {
				t.Error(err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.schedulers[p] = s
		},
		connect: func(ctx context.Context, p *Plugin, conn *Server, ready func()) error {
			return r.scheduler(p).Connect(ctx, conn, ready)
		}})
	if p != nil {
		r.serve(p)
	}
	return r
}

func (r *rig) scheduler(p *Plugin) *Scheduler {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.schedulers[p]
}

// serve runs the server, and waits until the plugin is ready.
func (r *rig) serve(p *half) *grpc.Server {
	r.Helper()
	server := r.start(p, "gadget.sock")
	r.plugin = awaitReady(r.T, r.sockets, "gadget")
	return server
}

func (r *rig) start(p *half, socket string) *grpc.Server {
	r.Helper()
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	pb.RegisterDeviceSchedulerServer(server, p)
	go server.Serve(listen(r.T, r.sockets, socket))
	r.Cleanup(server.Stop)
	return server
}

// nodes makes nodes 0 to n-1 known.
func (r *rig) nodes(n int, has func(int) int64) {
	r.Helper()
	for i := range n {
		info := &types.NodeInfo{Allocatable: types.ResourceList{gadget: has(i)}}
		if err := r.host.AddNode(fmt.Sprint(i), info); err != nil {
			r.Fatal(err)
		}
	}
}

// settled waits until the plugin has applied all nodes as they are.
func (r *rig) settled() {
	r.Helper()
	s := r.scheduler(r.plugin)
	await.That(r.T, "the plugin to have applied all nodes", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for session := range s.sessions {
			session.mu.Lock()
			defer session.mu.Unlock()
			if session.revision > 0 && session.applied == session.revision && len(session.waiting) == 0 {
				return true
			}
		}
		return false
	})
}

// awaitAway waits until plugins are away for a reason that has the part.
func (r *rig) awaitAway(part string) {
	r.Helper()
	await.That(r.T, "a plugin to be away: "+part, func() (bool, string) {
		away := fmt.Sprint(r.sockets.Away())
		return strings.Contains(away, part), away
	})
}

// fits asks for all of n nodes in one cycle, and returns how many fit.
func (r *rig) fits(n int, requested int64) (fit int, reasons []host.Reason) {
	ask := r.host.Ask(gadgets(requested), func(node string) iter.Seq[string] {
		return func(yield func(string) bool) {
			var at int
			_, _ = fmt.Sscan(node, &at)
			for i := 1; i < n && yield(fmt.Sprint((at+i)%n)); i++ {
			}
		}
	})
	for i := range n {
		if got := ask.Fits(r.host.Node(fmt.Sprint(i))); got.OK {
			fit++
		} else {
			reasons = append(reasons, got.Reasons...)
		}
	}
	return fit, reasons
}

func gadgets(n int64) *types.PodInfo {
	return &types.PodInfo{Name: "pod", RunningContainers: map[string]types.ContainerInfo{
		"main": {Requests: types.ResourceList{gadget: n}}}}
}
