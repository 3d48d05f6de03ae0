package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Scheduler is the scheduler's half of a plugin, for a host. It is safe for concurrent use.
type Scheduler struct {
	*Plugin
	host *host.Host

	// said is nil until it has started once; what it said then holds until it says something else.
	said atomic.Pointer[pb.SchedulerStartResponse]

	mu       sync.Mutex
	nodes    map[string]*host.Node
	sessions map[*session]bool
}

var _ host.Remote = (*Scheduler)(nil)

// NewScheduler returns the scheduler's half of the plugin, which the host asks from now on, unless
// there is an error.
func NewScheduler(h *host.Host, p *Plugin) (*Scheduler, error) {
	s := &Scheduler{Plugin: p, host: h, nodes: map[string]*host.Node{}, sessions: map[*session]bool{}}
	return s, h.Put(s)
}

// Connect implements Handler. It puts the plugin into the host again when the resources that the plugin
// answers for have changed, or whether it uses the group scheduler.
func (s *Scheduler) Connect(ctx context.Context, server *Server, ready func()) error {
	starting, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	said, err := pb.NewDeviceSchedulerClient(server).Start(starting, &pb.SchedulerStartRequest{})
	if err == nil {
		err = said.Check()
	}
	if err != nil {
		return &callError{s.name, "Start", err}
	}
	if s.newer(server.socket.order) != nil { // what that one says holds
		return errReplaced
	}
	if before := s.said.Swap(said); !proto.Equal(before, said) {
		if err := s.host.Put(s); err != nil {
			s.said.Store(nil) // the next connection puts it again
			return err
		}
	}
	return s.sendNodes(ctx, server, ready)
}

// UsingGroupScheduler is what the plugin said last.
func (s *Scheduler) UsingGroupScheduler() bool { return s.said.Load().GetUsesGroupScheduler() }

// Concerns implements host.Remote. A plugin that was never there may concern every pod if it is required,
// and none if it is not. Pods that request what it has said it gives out wait for either while it is
// away: nobody else would give it to them.
func (s *Scheduler) Concerns(pod *types.PodInfo) (bool, error) {
	started := s.said.Load() != nil
	if started && !s.resources().requested(pod) {
		return false, nil
	}
	err := s.Away()
	if err != nil && !started && !s.Required() {
		return false, nil
	}
	return true, err
}

// Recognizes implements host.Remote.
func (s *Scheduler) Recognizes(name types.ResourceName) bool { return s.resources().match(name) }

// AddNode does nothing: see SetNode.
func (*Scheduler) AddNode(string, *types.NodeInfo) {}

// RemoveNode does nothing: see SetNode.
func (*Scheduler) RemoveNode(string) {}

// TakePodResources counts what the pod was given of the plugin's resources, unless the group
// scheduler counts it.
func (s *Scheduler) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	resource.Take(node.Used, s.resources().holds(pod))
	return nil
}

// ReturnPodResources undoes TakePodResources.
func (s *Scheduler) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	if err := resource.Return(node.Used, s.resources().holds(pod)); err != nil {
		return fmt.Errorf("pod %s returns more than is used: %w", pod.Name, err)
	}
	return nil
}

// resources are those that the plugin answers for.
func (s *Scheduler) resources() patterns { return s.said.Load().GetResources() }

// Fit implements host.Remote. Nodes that the plugin has are named, others are sent whole. All of them have one
// deadline.
func (s *Scheduler) Fit(pod *types.PodInfo, nodes []*host.Node) ([]host.Verdict, error) {
	message := pb.PodInfoOf(pod)
	message.NodeName = ""
	verdicts := make([]host.Verdict, 0, len(nodes))
	call := func(ctx context.Context, server *Server) error {
		for len(verdicts) < len(nodes) {
			got, err := s.fit(ctx, server, pod, message, nodes[len(verdicts):])
			if err != nil {
				return err
			}
			verdicts = append(verdicts, got...)
		}
		return nil
	}
	return verdicts, s.Call(context.Background(), s.options.Timeout, "Fit", call)
}

// fit asks one server, about as many of the nodes as a message takes, at least one.
func (s *Scheduler) fit(ctx context.Context, server *Server, pod *types.PodInfo, message *pb.PodInfo,
	nodes []*host.Node) ([]host.Verdict, error) {
	session := server.State.(*session)
	named := session.name(nodes)
	defer session.answered()
	request := &pb.FitRequest{Pod: message}
	var byName, whole []int // the nodes' indices, in the order of the request
	bytes := 0
	for i, n := range nodes {
		if named[i] {
			request.Session, request.Names = session.id, append(request.Names, n.Name())
			byName = append(byName, i)
			continue
		}
		if bytes >= maxRequestBytes {
			break
		}
		info := pb.NodeInfoOf(n.Info())
		request.Nodes = append(request.Nodes, info)
		whole = append(whole, i)
		bytes += proto.Size(info)
	}
	asked := slices.Concat(byName, whole)
	answer, err := pb.NewDeviceSchedulerClient(server).Fit(ctx, request)
	if err == nil {
		err = answer.Check(len(asked))
	}
	if err != nil {
		return nil, err
	}
	verdicts := make([]host.Verdict, len(asked))
	for k, i := range asked {
		if verdicts[i], err = s.verdict(pod, answer.GetVerdicts()[k]); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// verdict is what the plugin says of a node.
func (s *Scheduler) verdict(pod *types.PodInfo, v *pb.Verdict) (host.Verdict, error) {
	got := host.Verdict{OK: v.GetFits(), Score: v.GetScore()}
	var err error
	if got.Pod, err = s.changed(pod, v.GetChanges()); err != nil || got.OK {
		return got, err
	}
	for _, r := range v.GetReasons() {
		text, name := r.GetText(), types.ResourceName(r.GetResource())
		if text == "" {
			text = resource.NewInsufficientResourceError(name, r.GetRequested(), r.GetUsed(),
				r.GetCapacity()).GetReason()
		}
		got.Reasons = append(got.Reasons, host.Reason{Plugin: s.name, Text: text, Resource: name,
			Requested: r.GetRequested(), Used: r.GetUsed(), Capacity: r.GetCapacity(), Never: r.GetNever()})
	}
	return got, nil
}

// PodFitsDevice is not called: the host calls Fit instead, which may fail.
func (*Scheduler) PodFitsDevice(*types.NodeInfo, *types.PodInfo, bool) (
	bool, []devicescheduler.PredicateFailureReason, float64) {
	return false, nil, 0
}

// PodAllocate implements devicescheduler.DeviceScheduler.
func (s *Scheduler) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	request := &pb.AllocateRequest{Pod: pb.PodInfoOf(pod), Node: pb.NodeInfoOf(node)}
	call := func(ctx context.Context, server *Server) error {
		answer, err := pb.NewDeviceSchedulerClient(server).Allocate(ctx, request)
		if err != nil {
			return err
		}
		got, err := s.changed(pod, answer.GetChanges())
		if err == nil {
			*pod = *got
		}
		return err
	}
	return s.Call(context.Background(), s.options.Timeout, "Allocate", call)
}

// changed returns the pod with the plugin's changes.
func (s *Scheduler) changed(pod *types.PodInfo, changes *pb.PodChanges) (*types.PodInfo, error) {
	got, err := changes.ChangeIn(pod)
	if err != nil || s.UsingGroupScheduler() {
		return got, err
	}
	for name, c := range got.Containers() {
		before := pod.GetContainerInPod(name).AllocateFrom
		for want := range c.AllocateFrom {
			if _, had := before[want]; !had && resource.IsGroupResourceName(want) {
				return nil, fmt.Errorf("%w: it does not use the group scheduler, and allocates %.64q, which that "+
					"would count", contain.ErrInvalid, want)
			}
		}
	}
	return got, nil
}

// patterns are names of resources, and beginnings of such with a '*' at the end.
type patterns []string

// requested reports whether the pod requests any of the resources.
func (p patterns) requested(pod *types.PodInfo) bool {
	for _, c := range pod.Containers() {
		if p.in(c.Requests) || p.in(c.KubeRequests) {
			return true
		}
	}
	return p.in(pod.Requests)
}

func (p patterns) in(list types.ResourceList) bool {
	for name, n := range list {
		if n != 0 && p.match(name) {
			return true
		}
	}
	return false
}

func (p patterns) match(name types.ResourceName) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		begin, isBegin := strings.CutSuffix(pattern, "*")
		return string(name) == pattern || isBegin && strings.HasPrefix(string(name), begin)
	})
}

// holds is what the pod was given of the resources that are no group resources. Each entry of
// AllocateFrom is one unit unless DevRequests has more for it.
func (p patterns) holds(pod *types.PodInfo) types.ResourceList {
	return resource.OfPod(pod, func(_ string, c *types.ContainerInfo) types.ResourceList {
		holds := types.ResourceList{}
		for want, from := range c.AllocateFrom {
			if !resource.IsGroupResourceName(want) && (p.match(want) || p.match(from)) {
				holds[from] = resource.AddCapped(holds[from], max(c.DevRequests[want], 1))
			}
		}
		return holds
	})
}
