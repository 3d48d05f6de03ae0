package server

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// Scheduler is the scheduler's half of a plugin, which answers for pods that request one of the
// resources: names, or beginnings of names with a '*' at the end. PodFitsDevice may be called
// concurrently with itself, all else never is.
//
// The scheduler keeps the nodes, and counts what pods hold of them. So AddNode gets a copy: what it
// changes there is lost. TakePodResources and ReturnPodResources are never called.
func Scheduler(s devicescheduler.DeviceScheduler, resources ...string) Plugin {
	return Plugin{Name: s.GetName(), Half: registration.Half_SCHEDULER, Register: func(r grpc.ServiceRegistrar) {
		pb.RegisterDeviceSchedulerServer(r,
			&schedulerService{plugin: s, resources: resources, sessions: map[string]map[string]*types.NodeInfo{}})
	}}
}

type schedulerService struct {
	pb.UnimplementedDeviceSchedulerServer
	plugin    devicescheduler.DeviceScheduler
	resources []string

	mu sync.RWMutex // held by each call of the plugin, shared by PodFitsDevice
	// sessions are the nodes of the streams, by name. A NodeInfo in it is never changed.
	sessions map[string]map[string]*types.NodeInfo
}

// Start implements pb.DeviceSchedulerServer.
func (s *schedulerService) Start(context.Context, *pb.SchedulerStartRequest) (*pb.SchedulerStartResponse, error) {
	return &pb.SchedulerStartResponse{Resources: s.resources, UsesGroupScheduler: s.plugin.UsingGroupScheduler()}, nil
}

// Nodes implements pb.DeviceSchedulerServer. The nodes are forgotten when the stream ends.
func (s *schedulerService) Nodes(stream grpc.BidiStreamingServer[pb.NodesRequest, pb.NodesResponse]) error {
	session := ""
	defer func() { s.forget(session) }()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		session = request.GetSession()
		s.apply(request)
		if err := stream.Send(&pb.NodesResponse{Revision: request.GetRevision()}); err != nil {
			return err
		}
	}
}

func (s *schedulerService) apply(r *pb.NodesRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sessions[r.GetSession()]
	if sent == nil {
		sent = map[string]*types.NodeInfo{}
		s.sessions[r.GetSession()] = sent
	}
	for _, n := range r.GetNodes() {
		node := n.Info()
		sent[node.Name] = node
		s.plugin.AddNode(node.Name, node.Clone())
	}
	for _, name := range r.GetRemoved() {
		delete(sent, name)
		s.removed(name)
	}
}

func (s *schedulerService) forget(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sessions[session]
	delete(s.sessions, session)
	for name := range sent {
		s.removed(name)
	}
}

// removed has the plugin forget the node unless another session has it. s.mu must be held.
func (s *schedulerService) removed(name string) {
	for _, others := range s.sessions {
		if others[name] != nil {
			return
		}
	}
	s.plugin.RemoveNode(name)
}

// Fit implements pb.DeviceSchedulerServer.
func (s *schedulerService) Fit(ctx context.Context, r *pb.FitRequest) (*pb.FitResponse, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nodes := make([]*types.NodeInfo, 0, len(r.GetNames())+len(r.GetNodes()))
	for _, name := range r.GetNames() {
		node := s.sessions[r.GetSession()][name]
		if node == nil {
			return nil, status.Errorf(codes.FailedPrecondition, "session %q has no node %q", r.GetSession(), name)
		}
		nodes = append(nodes, node.Clone())
	}
	for _, n := range r.GetNodes() {
		nodes = append(nodes, n.Info())
	}
	pod, response := r.GetPod().Info(), &pb.FitResponse{}
	for _, node := range nodes {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		response.Verdicts = append(response.Verdicts, s.fits(node, pod))
	}
	return response, nil
}

// fits asks the plugin, which may keep or change the node. s.mu must be held.
func (s *schedulerService) fits(node *types.NodeInfo, pod *types.PodInfo) *pb.Verdict {
	copied := pod.Clone()
	fits, reasons, score := s.plugin.PodFitsDevice(node, copied, true)
	if fits {
		return &pb.Verdict{Fits: true, Score: score, Changes: pb.PodChangesOf(pod, copied)}
	}
	verdict := &pb.Verdict{}
	for _, r := range reasons {
		if r != nil {
			verdict.Reasons = append(verdict.Reasons, reason(r))
		}
	}
	return verdict
}

// Allocate implements pb.DeviceSchedulerServer.
func (s *schedulerService) Allocate(_ context.Context, r *pb.AllocateRequest) (*pb.AllocateResponse, error) {
	pod := r.GetPod().Info()
	copied := pod.Clone()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.plugin.PodAllocate(r.GetNode().Info(), copied); err != nil {
		return nil, err
	}
	return &pb.AllocateResponse{Changes: pb.PodChangesOf(pod, copied)}, nil
}

func reason(r devicescheduler.PredicateFailureReason) *pb.Reason {
	resource, requested, used, capacity := r.GetInfo()
	never, ok := r.(interface{ Never() bool })
	return &pb.Reason{Text: r.GetReason(), Resource: string(resource), // the protocol has no negative amounts
		Requested: max(requested, 0), Used: max(used, 0), Capacity: max(capacity, 0), Never: ok && never.Never()}
}
