package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/types/contain"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

const (
	// maxNodes is how many nodes a message of the stream has, and maxRequestBytes how long a message
	// to a plugin becomes if one node more is in it: gRPC servers take 4 MiB by default.
	maxNodes        = 100
	maxRequestBytes = 1 << 20
	// maxUnapplied is how many messages are sent before the first of them has been applied. What
	// changes meanwhile waits here, as one entry a node.
	maxUnapplied = 4
)

// session is a stream of nodes to one server. It is safe for concurrent use.
type session struct {
	id   string
	wake chan struct{} // has an entry when there may be something to send

	mu sync.Mutex
	// waiting are nodes that have changed since they were sent.
	waiting map[string]*host.Node
	sent    map[string]sentNode
	// asking counts, by name, the Fits in flight that name the node: the plugin must not get it as it
	// is now before it has answered.
	asking            map[string]int
	revision, applied int64
	synced            bool
}

// sentNode is a node as it was sent last, and in which message.
type sentNode struct {
	node     *host.Node
	revision int64
}

// SetNode implements host.Remote.
func (s *Scheduler) SetNode(n *host.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[n.Name()] = n; !n.Known() {
		delete(s.nodes, n.Name())
	}
	for _, session := range s.sessions {
		session.set(n)
	}
}

// sendNodes sends the nodes, and what changes, until the connection or the stream ends.
func (s *Scheduler) sendNodes(connected context.Context, conn grpc.ClientConnInterface, ready func()) error {
	ctx, cancel := context.WithCancel(connected)
	defer cancel()
	stream, err := pb.NewDeviceSchedulerClient(conn).Nodes(ctx)
	if err != nil {
		return &callError{s.plugin.name, "Nodes", err}
	}
	session := s.begin(conn)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, conn)
	}()
	ready()
	received := make(chan error, 1)
	go func() {
		defer cancel() // so that the sender ends
		received <- session.receive(stream)
	}()
	session.send(ctx, stream)
	cancel()
	if err = <-received; connected.Err() != nil {
		return connected.Err()
	}
	return &callError{s.plugin.name, "Nodes", err}
}

// begin makes a session in which all nodes are waiting.
func (s *Scheduler) begin(conn grpc.ClientConnInterface) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := &session{id: string(uuid.NewUUID()), wake: make(chan struct{}, 1), waiting: map[string]*host.Node{},
		sent: map[string]sentNode{}, asking: map[string]int{}}
	for _, n := range s.nodes {
		session.set(n)
	}
	s.sessions[conn] = session
	return session
}

func (s *session) set(n *host.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[n.Name()] = n
	s.poke()
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// send sends until ctx or the stream ends; receive has the reason.
func (s *session) send(ctx context.Context, stream grpc.BidiStreamingClient[pb.NodesRequest, pb.NodesResponse]) {
	for {
		for m := s.next(); m != nil; m = s.next() {
			if stream.Send(m) != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// next returns the message that is to be sent next, and counts it as sent; nil if there is none now.
func (s *session) next() *pb.NodesRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revision-s.applied >= maxUnapplied || s.synced && len(s.waiting) == 0 {
		return nil
	}
	m := &pb.NodesRequest{Session: s.id, Revision: s.revision + 1}
	bytes := 0
	for name, n := range s.waiting {
		if s.asking[name] > 0 {
			continue
		}
		if bytes >= maxRequestBytes || len(m.Nodes)+len(m.Removed) == maxNodes {
			break
		}
		delete(s.waiting, name)
		if !n.Known() {
			delete(s.sent, name)
			m.Removed = append(m.Removed, name)
			bytes += len(name)
			continue
		}
		s.sent[name] = sentNode{n, m.Revision}
		m.Nodes = append(m.Nodes, pb.NodeInfoOf(n.Info()))
		bytes += proto.Size(m.Nodes[len(m.Nodes)-1])
	}
	s.synced = s.synced || len(s.waiting) == 0
	if len(m.Nodes)+len(m.Removed) == 0 && s.revision > 0 {
		return nil // those that wait are asked about; the first message may be empty
	}
	m.Synced = s.synced
	s.revision++
	return m
}

// receive takes what the plugin has applied, until the stream ends.
func (s *session) receive(stream grpc.BidiStreamingClient[pb.NodesRequest, pb.NodesResponse]) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("it ended the stream of nodes")
		}
		if err == nil {
			err = s.apply(m.GetRevision())
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) apply(revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision <= s.applied || revision > s.revision {
		return fmt.Errorf("%w: it has applied message %d, after message %d, of %d that were sent",
			contain.ErrInvalid, revision, s.applied, s.revision)
	}
	s.applied = revision
	s.poke()
	return nil
}

// name reports for each node whether the plugin has it as it is, so that its name is enough. Until
// done is called, the plugin keeps those.
func (s *session) name(nodes []*host.Node) (named []bool, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named = make([]bool, len(nodes))
	for i, n := range nodes {
		last, ok := s.sent[n.Name()]
		if named[i] = ok && last.node == n && last.revision <= s.applied; named[i] {
			s.asking[n.Name()]++
		}
	}
	return named, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, n := range nodes {
			if !named[i] {
				continue
			}
			if s.asking[n.Name()]--; s.asking[n.Name()] == 0 {
				delete(s.asking, n.Name())
			}
		}
		s.poke()
	}
}
