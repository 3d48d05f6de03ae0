package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// session is a stream of nodes.
type session struct {
	id       string
	stream   pb.DeviceScheduler_NodesClient
	revision int64
	end      func()
}

func (t *target) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := t.scheduler.Nodes(ctx)
	return &session{id: "conformance-" + rand.Text(), stream: stream, end: cancel}, err
}

// send sends a message and returns when it is acknowledged.
func (s *session) send(r *pb.NodesRequest) error {
	s.revision++
	r.Session, r.Revision = s.id, s.revision
	if err := s.stream.Send(r); err != nil {
		_, err = s.stream.Recv() // which says why
		return err
	}
	late := time.AfterFunc(slow, s.end)
	defer late.Stop()
	got, err := s.stream.Recv()
	if err != nil {
		return fmt.Errorf("message %d is not acknowledged within %s: %w", s.revision, slow, err)
	}
	if got.GetRevision() != s.revision {
		return fmt.Errorf("message %d is acknowledged as %d", s.revision, got.GetRevision())
	}
	return nil
}

// sameByName returns an error unless Fit says of the nodes by their names what it says of them inline.
func (t *target) sameByName(ctx context.Context, s *session, resource string, nodes []*pb.NodeInfo) error {
	byName := &pb.FitRequest{Pod: pod(nil, one(resource)), Session: s.id}
	for _, n := range nodes {
		byName.Names = append(byName.Names, n.GetName())
	}
	named, err := t.fit(ctx, byName)
	if err != nil {
		return err
	}
	inline, err := t.fit(ctx, &pb.FitRequest{Pod: byName.GetPod(), Nodes: nodes})
	if err == nil && !proto.Equal(named, inline) {
		err = fmt.Errorf("by name it says %v, and of the nodes inline %v", named, inline)
	}
	return err
}

func nodesInOrder(ctx context.Context, t *target, resource string) error {
	var streams errgroup.Group
	for range 2 {
		streams.Go(func() error {
			s, err := t.open(ctx)
			if err != nil {
				return err
			}
			defer s.end()
			for i := range repetitions {
				name := fmt.Sprintf("node-%d", i)
				r := &pb.NodesRequest{Nodes: []*pb.NodeInfo{nodeWith(name, resource, 1)}, Synced: true}
				if err := s.send(r); err != nil {
					return err
				}
			}
			return s.send(&pb.NodesRequest{Removed: []string{"node-0"}})
		})
	}
	return streams.Wait()
}

func sessionsApart(ctx context.Context, t *target, resource string) error {
	var open [2]*session
	nodes := [2][]*pb.NodeInfo{{nodeWith("node", resource, 4)}, {{Name: "node"}}}
	for i := range open {
		var err error
		if open[i], err = t.open(ctx); err != nil {
			return err
		}
		defer open[i].end()
		if err := open[i].send(&pb.NodesRequest{Nodes: nodes[i], Synced: true}); err != nil {
			return err
		}
	}
	apart := func() error {
		for i := range open {
			if err := t.sameByName(ctx, open[i], resource, nodes[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := apart(); err != nil {
		return err
	}
	// A change is applied to one of the two.
	nodes[1] = []*pb.NodeInfo{nodeWith("node", resource, 1)}
	if err := open[1].send(&pb.NodesRequest{Nodes: nodes[1]}); err != nil {
		return err
	}
	return apart()
}

func nodesAgain(ctx context.Context, t *target, resource string) error {
	for range 2 {
		s, err := t.open(ctx)
		if err != nil {
			return err
		}
		defer s.end()
		if err := s.send(&pb.NodesRequest{Nodes: some(resource), Synced: true}); err != nil {
			return err
		}
		if err := t.sameByName(ctx, s, resource, some(resource)); err != nil {
			return err
		}
		s.end()
	}
	return nil
}

func fitManyNodes(ctx context.Context, t *target, resource string) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	for sent := 0; sent < manyNodes; sent += chunk {
		r := &pb.NodesRequest{Synced: sent+chunk == manyNodes}
		for i := range chunk {
			r.Nodes = append(r.Nodes, nodeWith(fmt.Sprintf("node-%d", sent+i), resource, int64(i%8)))
		}
		if err := s.send(r); err != nil {
			return err
		}
	}
	for asked := 0; asked < manyNodes; asked += chunk {
		r := &pb.FitRequest{Pod: pod(nil, one(resource)), Session: s.id}
		for i := range chunk {
			r.Names = append(r.Names, fmt.Sprintf("node-%d", asked+i))
		}
		if _, err := t.fit(ctx, r); err != nil {
			return fmt.Errorf("nodes %d to %d: %w", asked, asked+chunk, err)
		}
	}
	return nil
}
