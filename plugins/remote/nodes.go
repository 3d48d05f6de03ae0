package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types/contain"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// maxNodes is how many nodes a message of the stream has, and maxRequestBytes how long a message
	// to a plugin becomes if one node more is in it: gRPC servers take 4 MiB by default.
	maxNodes        = 100
	maxRequestBytes = 1 << 20
)

// session is a stream of nodes to one server, which is sent the next message when it has applied the
// one before. It is safe for concurrent use.
type session struct {
	id   string
	wake wake.Signal // has an entry when there may be something to send

	mu sync.Mutex
	// waiting are nodes that have changed since they were sent: one entry a node. sent are those that the
	// plugin has once it has applied the message that each was in.
	waiting map[string]*host.Node
	sent    map[string]sentNode
	// asking counts the Fits in flight: the plugin must not get a node as it is now before it has
	// answered about it as it was.
	asking            int
	revision, applied int64 // of the last message
	synced            bool
}

// sentNode is a node as it was sent in the message of the revision.
type sentNode struct {
	*host.Node
	in int64
}

// SetNode implements host.Remote.
func (s *Scheduler) SetNode(n *host.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[n.Name()] = n; !n.Known() {
		delete(s.nodes, n.Name())
	}
	for session := range s.sessions {
		session.set(n)
	}
}

// sendNodes sends the nodes, and what changes, until the connection or the stream ends.
func (s *Scheduler) sendNodes(ctx context.Context, server *Server, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewDeviceSchedulerClient(server).Nodes(ctx)
	if err != nil {
		return &callError{s.name, "Nodes", err}
	}
	session := &session{id: string(uuid.NewUUID()), wake: wake.New(), sent: map[string]sentNode{}}
	s.mu.Lock()
	session.waiting, s.sessions[session] = maps.Clone(s.nodes), true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, session)
	}()
	server.State = session
	ready()
	return &callError{s.name, "Nodes", session.run(ctx, stream)}
}

func (s *session) set(n *host.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := n.Name(); n.Known() || s.sent[name].Node != nil {
		s.waiting[name] = n
		s.wake.Send()
	} else {
		delete(s.waiting, name) // the plugin never had it
	}
}

// run sends nodes until the stream ends, and returns why. ctx is the stream's.
func (s *session) run(ctx context.Context, stream grpc.BidiStreamingClient[pb.NodesRequest, pb.NodesResponse]) error {
	go func() {
		for ctx.Err() == nil {
			if m := s.next(); m != nil {
				_ = stream.Send(m) // if it fails, Recv says why
			}
			select {
			case <-ctx.Done():
			case <-s.wake:
			}
		}
	}()
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("it ended the stream of nodes")
		case err != nil:
			return err
		}
		if err := s.apply(m.GetRevision()); err != nil {
			return err
		}
	}
}

// next returns the message that is to be sent next, and counts it as sent; nil if there is none now.
func (s *session) next() *pb.NodesRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.applied < s.revision || s.asking > 0 {
		return nil
	}
	m, bytes := &pb.NodesRequest{Session: s.id, Revision: s.revision + 1}, 0
	for name, n := range s.waiting {
		if bytes >= maxRequestBytes || len(m.Nodes)+len(m.Removed) == maxNodes {
			break
		}
		delete(s.waiting, name)
		bytes += len(name)
		if !n.Known() {
			delete(s.sent, name)
			m.Removed = append(m.Removed, name)
			continue
		}
		info := pb.NodeInfoOf(n.Info())
		m.Nodes, s.sent[name] = append(m.Nodes, info), sentNode{n, m.GetRevision()}
		bytes += proto.Size(info)
	}
	s.synced = s.synced || len(s.waiting) == 0
	if len(m.Nodes)+len(m.Removed) == 0 && s.revision > 0 {
		return nil // the first message may be empty
	}
	m.Synced, s.revision = s.synced, m.GetRevision()
	return m
}

// apply takes that the plugin has applied a message.
func (s *session) apply(revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != s.revision || s.applied == revision {
		return fmt.Errorf("%w: it has applied message %d, of %d that were sent",
			contain.ErrInvalid, revision, s.revision)
	}
	s.applied = revision
	s.wake.Send()
	return nil
}

// name reports for each node whether the plugin has it as it is, so that its name is enough. Until
// answered is called, the plugin keeps those.
func (s *session) name(nodes []*host.Node) (named []bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking++
	named = make([]bool, len(nodes))
	for i, n := range nodes {
		sent := s.sent[n.Name()]
		named[i] = sent.Node == n && sent.in <= s.applied
	}
	return named
}

func (s *session) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking--
	s.wake.Send()
}
