package brokers

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// startsWithin is how long a new broker may take to become Ready before the roll-out goes on
// without it, if others of its spec are Ready.
const startsWithin = time.Minute

// phase is how far a roll-out has come with the broker of one Instance on one node.
type phase uint8

const (
	// waiting: a Ready broker of an earlier spec or of other properties waits for its turn.
	waiting phase = iota
	// turn: it may be replaced now.
	turn
	// starting: a broker is being deleted, or its successor is not Ready yet.
	starting
	// late: the successor ended, was refused, or did not become Ready in time.
	late
	// done: the broker is of the spec and Ready.
	done
)

// step is how far the broker of an Instance on one node has come.
type step struct {
	node  string // the value of the broker's label
	phase phase
	works bool      // the broker is of the spec and Ready, be it of other properties
	pod   types.UID // that waits, or has its turn
}

func (s step) sameNode(other step) bool { return s.node == other.node }

// rollout replaces Ready brokers of Configurations on a few nodes at a time: it hands out turns, and
// wakes the Instances that get one. All brokers of a node have their turn together. Its methods may
// be called concurrently.
type rollout struct {
	// wake is called, without the lock, with each Instance that waited and has its turn now.
	wake func(instance types.NamespacedName)

	mu sync.Mutex
	of map[types.NamespacedName]*state // by Configuration
}

// state is how far a Configuration's roll-out has come.
type state struct {
	uid        types.UID // of the Configuration
	generation int64
	spec       *akriv0.ConfigurationSpec
	hash       string // of the brokers' spec
	steps      map[string][]step
	nodes      map[string]*nodeState
	queue      []string // nodes with brokers that wait, the first first
	// active nodes have a broker in the phase turn or starting, late ones in the phase late.
	active, late int
	// works is how many brokers are of the spec and Ready. While there is one, what is late is the
	// fault of a device; else it may be the spec's.
	works int
}

// nodeState counts a node's brokers by their phases.
type nodeState struct {
	brokers, active, late int
	waiting               map[string]struct{} // Instances
	queued                bool
}

// forget forgets a Configuration that is gone.
func (r *rollout) forget(configuration types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, configuration)
}

// leave notes that the Instance has no broker pods that a roll-out has to do with.
func (r *rollout) leave(instance types.NamespacedName) {
	r.mu.Lock()
	s := r.of[naming.ConfigurationOf(instance)]
	if s == nil {
		r.mu.Unlock()
		return
	}
	s.set(instance.Name, nil)
	if len(s.steps) == 0 {
		delete(r.of, naming.ConfigurationOf(instance))
	}
	woken := s.handOut("")
	r.mu.Unlock()
	r.wakeAll(instance.Namespace, woken)
}

// report notes how far the Instance's brokers have come, and returns the nodes whose broker has its
// turn. hash is of the Configuration's brokers. all returns the steps of all Instances, and is called once for
// each hash.
func (r *rollout) report(
	c *akriv0.Configuration, hash, instance string, steps []step, all func() (map[string][]step, error),
) ([]string, error) {
	key := client.ObjectKeyFromObject(c)
	r.mu.Lock()
	s := r.of[key]
	if s != nil && s.uid == c.UID && s.generation > c.Generation {
		r.mu.Unlock() // the change of the spec has put the Instance into the queue again
		return nil, nil
	}
	if s == nil || s.uid != c.UID || s.hash != hash {
		now, err := all()
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
		s = s.next(c.UID, hash, now)
		if r.of == nil {
			r.of = map[types.NamespacedName]*state{}
		}
		r.of[key] = s
	}
	s.generation, s.spec = c.Generation, &c.Spec
	s.set(instance, steps)
	woken := s.handOut(instance)
	var turns []string
	for _, st := range s.steps[instance] {
		if st.phase == turn {
			turns = append(turns, st.node)
		}
	}
	r.mu.Unlock()
	r.wakeAll(c.Namespace, woken)
	return turns, nil
}

func (r *rollout) wakeAll(namespace string, instances []string) {
	for _, name := range instances {
		r.wake(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

// next is the state of the roll-out of another spec. The former's turns stand: the cache may not
// show yet that their brokers are being deleted. s may be nil.
func (s *state) next(uid types.UID, hash string, now map[string][]step) *state {
	n := &state{uid: uid, hash: hash, steps: map[string][]step{}, nodes: map[string]*nodeState{}}
	if s != nil && s.uid == uid {
		for instance, steps := range s.steps {
			for _, st := range steps {
				if st.phase == turn && !slices.ContainsFunc(now[instance], st.sameNode) {
					st.works = false
					now[instance] = append(now[instance], st)
				}
			}
		}
	}
	for instance, steps := range now {
		n.set(instance, steps)
	}
	return n
}

// set replaces the steps of an Instance. A broker keeps its turn while it is there.
func (s *state) set(instance string, now []step) {
	before := s.steps[instance]
	for i := range now {
		st := &now[i]
		hadTurn := func(b step) bool { return b.phase == turn && b.node == st.node && b.pod == st.pod }
		if st.phase == waiting && slices.ContainsFunc(before, hadTurn) {
			st.phase = turn
		}
	}
	if slices.Equal(before, now) {
		return
	}
	for _, st := range before {
		s.count(instance, st, -1)
	}
	for _, st := range now {
		s.count(instance, st, 1)
	}
	for _, st := range before {
		s.tidy(st.node)
	}
	if s.steps[instance] = now; len(now) == 0 {
		delete(s.steps, instance)
	}
}

// count adds a step, or takes it away.
func (s *state) count(instance string, st step, by int) {
	n := s.nodes[st.node]
	if n == nil {
		n = &nodeState{}
		s.nodes[st.node] = n
	}
	n.brokers += by
	if st.works {
		s.works += by
	}
	switch st.phase {
	case waiting:
		if by < 0 {
			delete(n.waiting, instance)
			break
		}
		if n.waiting == nil {
			n.waiting = map[string]struct{}{}
		}
		n.waiting[instance] = struct{}{}
		if !n.queued {
			n.queued, s.queue = true, append(s.queue, st.node)
		}
	case turn, starting:
		s.active += countNode(&n.active, by)
	case late:
		s.late += countNode(&n.late, by)
	}
}

// countNode adds to a node's count, and returns what that adds to the number of nodes that have any.
func countNode(count *int, by int) int {
	before := *count
	switch *count += by; {
	case before == 0 && *count > 0:
		return 1
	case before > 0 && *count == 0:
		return -1
	}
	return 0
}

// tidy forgets a node that has no broker.
func (s *state) tidy(node string) {
	if n := s.nodes[node]; n != nil && n.brokers == 0 && !n.queued {
		delete(s.nodes, node)
	}
}

// handOut gives nodes their turn, the first that waits first, and returns the Instances besides the
// one that asks that have theirs now.
func (s *state) handOut(asks string) (woken []string) {
	for len(s.queue) > 0 {
		node := s.queue[0]
		n := s.nodes[node]
		if len(n.waiting) > 0 && !s.may(n) {
			break
		}
		s.queue, n.queued = s.queue[1:], false
		woken = s.give(node, asks, woken)
		s.tidy(node)
	}
	for _, st := range s.steps[asks] {
		if st.phase == waiting && s.may(s.nodes[st.node]) {
			woken = s.give(st.node, asks, woken)
		}
	}
	return woken
}

// may reports whether the brokers of a node may be replaced now.
func (s *state) may(n *nodeState) bool {
	// As long as no broker of the spec works, nothing but the one node goes on that it does not work on.
	stopped := s.works == 0 && (s.late > 1 || s.late == 1 && n.late == 0)
	unavailable, _ := s.spec.UnavailableNodes(len(s.nodes)) // the status has the error
	return !stopped && (n.active > 0 || s.active < unavailable)
}

// give gives those that wait on a node their turn, and appends them to woken, but for the one that asks.
func (s *state) give(node, asks string, woken []string) []string {
	n := s.nodes[node]
	for instance := range n.waiting {
		steps := s.steps[instance]
		i := slices.IndexFunc(steps, step{node: node}.sameNode)
		s.count(instance, steps[i], -1)
		steps[i].phase = turn
		s.count(instance, steps[i], 1)
		if instance != asks {
			woken = append(woken, instance)
		}
	}
	return woken
}
