package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// chunk is how many nodes the host asks about in one call, and manyNodes those of a large cluster.
const chunk, manyNodes = 64, 80 * 64

// session is a stream of nodes.
type session struct {
	*target
	id       string
	stream   pb.DeviceScheduler_NodesClient
	revision int64
	end      func()
}

func (t *target) open() *session {
	ctx, cancel := context.WithCancel(t.ctx)
	return &session{target: t, id: "conformance-" + rand.Text(), stream: must(t.scheduler.Nodes(ctx)), end: cancel}
}

// send sends a message and returns when it is acknowledged.
func (s *session) send(r *pb.NodesRequest) {
	s.revision++
	r.Session, r.Revision = s.id, s.revision
	_ = s.stream.Send(r) // if it fails, Recv says why
	late := time.AfterFunc(s.slow, s.end)
	defer late.Stop()
	got, err := s.stream.Recv()
	switch {
	case err != nil:
		fail("message %d is not acknowledged within %s: %w", s.revision, s.slow, err)
	case got.GetRevision() != s.revision:
		fail("message %d is acknowledged as %d", s.revision, got.GetRevision())
	}
}

// sameByName wants that Fit says of the node by its name what it says of it inline.
func (s *session) sameByName(node *pb.NodeInfo) {
	named := s.fit(&pb.FitRequest{Pod: s.podWith(1), Session: s.id, Names: []string{node.GetName()}})
	inline := s.fit(&pb.FitRequest{Pod: s.podWith(1), Nodes: []*pb.NodeInfo{node}})
	if !proto.Equal(named, inline) {
		fail("by name it says %v, and of the node inline %v", named, inline)
	}
}

// sessions has two, which have different nodes of one name.
func (t *target) sessions() {
	one, other := t.open(), t.open()
	defer one.end()
	defer other.end()
	four, changed, none := t.nodeWith("node", 4), t.nodeWith("node", 1), &pb.NodeInfo{Name: "node"}
	one.send(&pb.NodesRequest{Nodes: []*pb.NodeInfo{four}, Synced: true})
	for _, n := range []*pb.NodeInfo{none, changed} {
		other.send(&pb.NodesRequest{Nodes: []*pb.NodeInfo{n}, Synced: true})
		one.sameByName(four)
		other.sameByName(n)
	}
	other.send(&pb.NodesRequest{Removed: []string{"node"}})
	t.unknown(other.id, "node")
	one.sameByName(four)
}

func fitManyNodes(t *target) {
	s := t.open()
	defer s.end()
	for sent := 0; sent < manyNodes; sent += chunk {
		r := &pb.NodesRequest{Synced: sent+chunk == manyNodes}
		for i := range chunk {
			r.Nodes = append(r.Nodes, t.nodeWith(fmt.Sprintf("node-%d", sent+i), int64(i%8)))
		}
		s.send(r)
	}
	for asked := 0; asked < manyNodes; asked += chunk {
		r := &pb.FitRequest{Pod: t.podWith(1), Session: s.id}
		for i := range chunk {
			r.Names = append(r.Names, fmt.Sprintf("node-%d", asked+i))
		}
		t.fit(r)
	}
}
