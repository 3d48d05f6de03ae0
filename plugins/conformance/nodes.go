package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// manyNodes are those of a large cluster, sent and asked for by chunk.
const manyNodes, chunk = 5000, 500

// session is a stream of nodes.
type session struct {
	id       string
	stream   pb.DeviceScheduler_NodesClient
	revision int64
	end      func()
	slow     time.Duration // the deadline of an acknowledgement
}

func (t *target) open() *session {
	ctx, cancel := context.WithCancel(t.ctx)
	return &session{id: "conformance-" + rand.Text(), stream: must(t.scheduler.Nodes(ctx)), end: cancel, slow: t.slow}
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

// sameByName wants that Fit says of the nodes by their names what it says of them inline.
func (t *target) sameByName(s *session, nodes ...*pb.NodeInfo) {
	byName := &pb.FitRequest{Pod: t.podWith(1), Session: s.id}
	for _, n := range nodes {
		byName.Names = append(byName.Names, n.GetName())
	}
	named, inline := t.fit(byName), t.fit(&pb.FitRequest{Pod: byName.GetPod(), Nodes: nodes})
	if !proto.Equal(named, inline) {
		fail("by name it says %v, and of the nodes inline %v", named, inline)
	}
}

func nodesInOrder(t *target) {
	atOnce(2)(func() {
		s := t.open()
		defer s.end()
		for i := range repetitions {
			n := t.nodeWith(fmt.Sprintf("node-%d", i), 1)
			s.send(&pb.NodesRequest{Nodes: []*pb.NodeInfo{n}, Synced: true})
		}
		s.send(&pb.NodesRequest{Removed: []string{"node-0"}})
	})
}

func sessionsApart(t *target) {
	one, other := t.open(), t.open()
	defer one.end()
	defer other.end()
	four, none, changed := t.nodeWith("node", 4), &pb.NodeInfo{Name: "node"}, t.nodeWith("node", 1)
	one.send(&pb.NodesRequest{Nodes: []*pb.NodeInfo{four}, Synced: true})
	other.send(&pb.NodesRequest{Nodes: []*pb.NodeInfo{none}, Synced: true})
	t.sameByName(one, four)
	t.sameByName(other, none)
	other.send(&pb.NodesRequest{Nodes: []*pb.NodeInfo{changed}})
	t.sameByName(one, four)
	t.sameByName(other, changed)
}

func nodesAgain(t *target) {
	for range 2 {
		s := t.open()
		defer s.end()
		s.send(&pb.NodesRequest{Nodes: t.someNodes(), Synced: true})
		t.sameByName(s, t.someNodes()...)
		s.end()
	}
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
