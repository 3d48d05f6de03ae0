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
	wake chan struct{} // has an entry when there may be something to send

	mu sync.Mutex
	// waiting are nodes that have changed since they were sent: one entry a node. sending are those of
	// the message that the plugin has not applied yet, and has those that it has as they are here.
	waiting, sending, has map[string]*host.Node
	// asking counts, by name, the Fits in flight that name the node: the plugin must not get it as it
	// is now before it has answered.
	asking            map[string]int
	revision, applied int64
	synced            bool
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
func (s *Scheduler) sendNodes(ctx context.Context, conn grpc.ClientConnInterface, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
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
	return &callError{s.plugin.name, "Nodes", session.run(ctx, stream)}
}

// begin makes a session in which all nodes are waiting.
func (s *Scheduler) begin(conn grpc.ClientConnInterface) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := &session{id: string(uuid.NewUUID()), wake: make(chan struct{}, 1), waiting: maps.Clone(s.nodes),
		has: map[string]*host.Node{}, asking: map[string]int{}}
	s.sessions[conn] = session
	return session
}

func (s *session) set(n *host.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := n.Name(); n.Known() || s.has[name] != nil || s.sending[name] != nil {
		s.waiting[name] = n
		s.poke()
	} else {
		delete(s.waiting, name) // the plugin never had it
	}
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
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
	if s.applied < s.revision {
		return nil
	}
	m := &pb.NodesRequest{Session: s.id, Revision: s.revision + 1}
	sending, bytes := map[string]*host.Node{}, 0
	for name, n := range s.waiting {
		if s.asking[name] > 0 {
			continue
		}
		if bytes >= maxRequestBytes || len(m.Nodes)+len(m.Removed) == maxNodes {
			break
		}
		delete(s.waiting, name)
		delete(s.has, name)
		bytes += len(name)
		if !n.Known() {
			m.Removed = append(m.Removed, name)
			continue
		}
		info := pb.NodeInfoOf(n.Info())
		m.Nodes, sending[name] = append(m.Nodes, info), n
		bytes += proto.Size(info)
	}
	s.synced = s.synced || len(s.waiting) == 0
	if len(m.Nodes)+len(m.Removed) == 0 && s.revision > 0 {
		return nil // those that wait are asked about; the first message may be empty
	}
	m.Synced = s.synced
	s.revision, s.sending = m.Revision, sending
	return m
}

// apply takes that the plugin has applied a message.
func (s *session) apply(revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision != s.revision || s.applied == s.revision {
		return fmt.Errorf("%w: it has applied message %d, after message %d, of %d that were sent",
			contain.ErrInvalid, revision, s.applied, s.revision)
	}
	s.applied = revision
	maps.Copy(s.has, s.sending)
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
		if named[i] = s.has[n.Name()] == n; named[i] {
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
