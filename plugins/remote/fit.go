package remote

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
	"github.com/kubeslot/kubeslot/types/resource"
)

// Fit implements host.Remote. Nodes that the plugin has are named, others are sent whole.
func (s *Scheduler) Fit(pod *types.PodInfo, nodes []*host.Node) ([]host.Verdict, error) {
	message := pb.PodInfoOf(pod)
	message.NodeName = ""
	verdicts := make([]host.Verdict, 0, len(nodes))
	call := func(ctx context.Context, conn grpc.ClientConnInterface) error {
		got, err := s.fit(ctx, conn, pod, message, nodes[len(verdicts):])
		verdicts = append(verdicts, got...)
		return err
	}
	for len(verdicts) < len(nodes) {
		err := s.plugin.Call(context.Background(), s.timeout, "Fit", call)
		if err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// fit asks one server, about as many of the nodes as a message takes, at least one.
func (s *Scheduler) fit(ctx context.Context, conn grpc.ClientConnInterface, pod *types.PodInfo, message *pb.PodInfo,
	nodes []*host.Node) ([]host.Verdict, error) {
	request := &pb.FitRequest{Pod: message}
	named, id := make([]bool, len(nodes)), ""
	if session := s.session(conn); session != nil {
		var done func()
		named, done = session.name(nodes)
		defer done()
		id = session.id
	}
	bytes := 0
	for i, n := range nodes {
		if named[i] {
			request.Session = id
			request.Names = append(request.Names, n.Name())
			continue
		}
		if bytes >= maxRequestBytes {
			nodes = nodes[:i]
			break
		}
		info := pb.NodeInfoOf(n.Info())
		request.Nodes = append(request.Nodes, info)
		bytes += proto.Size(info)
	}
	answer, err := pb.NewDeviceSchedulerClient(conn).Fit(ctx, request)
	if err == nil {
		err = answer.Check(len(nodes))
	}
	if err != nil {
		return nil, err
	}
	verdicts := make([]host.Verdict, len(nodes))
	nextNamed, nextWhole := 0, len(request.Names)
	for i := range nodes {
		next := &nextWhole
		if named[i] {
			next = &nextNamed
		}
		if verdicts[i], err = s.verdict(pod, answer.GetVerdicts()[*next]); err != nil {
			return nil, err
		}
		*next++
	}
	return verdicts, nil
}

func (s *Scheduler) session(conn grpc.ClientConnInterface) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sessions[conn]
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
		got.Reasons = append(got.Reasons, host.Reason{Plugin: s.plugin.name, Text: text, Resource: name,
			Requested: r.GetRequested(), Used: r.GetUsed(), Capacity: r.GetCapacity(), Never: r.GetNever()})
	}
	return got, nil
}
