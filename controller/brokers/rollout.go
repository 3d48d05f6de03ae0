package brokers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

const (
	// startsWithin is how long a new broker may take to become Ready before the rollout
	// goes on without it, if others of its spec are Ready.
	startsWithin = time.Minute
	// lookEvery is the least time between two looks at all brokers of a Configuration:
	// each of its thousands of Instances may ask whether it is its turn.
	lookEvery = time.Second
	// askAgain is when a broker that waits for its turn asks again.
	askAgain = 3 * time.Second
	// askAgainStopped is the same while the rollout is stopped, because no broker of the
	// new spec has become Ready. Another spec, which is what helps, is looked at at once.
	askAgainStopped = 30 * time.Second
)

// rollout lets Ready brokers of an earlier spec be replaced on one node of a
// Configuration after the other. Its zero value is ready for use; its methods may be
// called concurrently.
type rollout struct {
	mu sync.Mutex
	of map[types.NamespacedName]*state // by Configuration
}

// turn is one Instance's broker on one node, which is the value of its label.
type turn struct{ instance, node string }

// grant is when a turn was taken, and the pod that it was taken for.
type grant struct {
	at       time.Time
	replaced types.UID
}

// state is how far a Configuration's rollout has come.
type state struct {
	granted map[turn]grant
	// What the pods showed when they were looked at last, of the spec with the hash.
	looked time.Time
	hash   string
	// busy are the nodes on which a broker is going, or its successor starts.
	busy map[string]struct{}
	// late are the nodes on which a successor ended, or did not become Ready in time.
	late map[string]struct{}
	// works is set when a broker of the spec is Ready: then what is late is the fault of
	// a device, else it may be the spec's.
	works bool
	// since is when a pod was seen first, by this process's clock: the API server's may be wrong.
	since map[types.UID]time.Time
}

// lookup returns all broker pods of a Configuration, and their nodes.
type lookup func() ([]*corev1.Pod, map[string]inventory.Node, error)

// forget forgets the turns of a Configuration that is gone.
func (r *rollout) forget(configuration types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, configuration)
}

// take takes the turn for a pod, or returns how long to wait before it is tried again.
// hash is of the Configuration's spec.
func (r *rollout) take(configuration types.NamespacedName, t turn, pod types.UID, hash string, now time.Time, look lookup) (wait time.Duration, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of[configuration]
	if s == nil {
		s = &state{granted: map[turn]grant{}}
		if r.of == nil {
			r.of = map[types.NamespacedName]*state{}
		}
		r.of[configuration] = s
	}
	if s.hash != hash || now.Sub(s.looked) >= lookEvery {
		pods, nodes, err := look()
		if err != nil {
			return 0, err
		}
		s.look(pods, nodes, hash, now)
	}
	switch {
	case s.isOthers(t.node):
		return askAgain, nil
	case !s.works && anyOther(s.late, t.node):
		return askAgainStopped, nil
	}
	s.granted[t] = grant{now, pod}
	return 0, nil
}

// isOthers reports whether another node has the turn.
func (s *state) isOthers(node string) bool {
	for t := range s.granted {
		if t.node != node {
			return true
		}
	}
	return anyOther(s.busy, node)
}

func anyOther(nodes map[string]struct{}, than string) bool {
	_, has := nodes[than]
	return len(nodes) > 1 || len(nodes) == 1 && !has
}

// look notes what the pods show.
func (s *state) look(pods []*corev1.Pod, nodes map[string]inventory.Node, hash string, now time.Time) {
	began, before := s.looked.IsZero(), s.since
	s.looked, s.hash, s.works, s.since = now, hash, false, map[types.UID]time.Time{}
	s.busy, s.late = map[string]struct{}{}, map[string]struct{}{}
	for t, g := range s.granted {
		if now.Sub(g.at) > startsWithin {
			delete(s.granted, t)
		}
	}
	for _, pod := range pods {
		s.since[pod.UID] = known{since: before[pod.UID]}.see(pod, now, began).since
		current, ready := pod.Annotations[naming.SpecHash] == hash, isReady(pod)
		t := turn{pod.Labels[naming.Instance], pod.Labels[naming.TargetNode]}
		// A grant is over when the successor is there, which counts by itself then. The
		// spec alone does not tell them apart: other properties replace pods, too.
		if g, has := s.granted[t]; has && pod.UID != g.replaced && pod.DeletionTimestamp == nil && current {
			delete(s.granted, t)
		}
		s.works = s.works || current && ready
		if n, exists := nodes[pod.Spec.NodeName]; exists && !n.Ready {
			continue // it goes when it can
		}
		switch {
		case pod.DeletionTimestamp != nil:
			s.busy[t.node] = struct{}{}
		case !current || ready:
		case isEnded(pod) || now.Sub(s.since[pod.UID]) > startsWithin:
			s.late[t.node] = struct{}{}
		default:
			s.busy[t.node] = struct{}{}
		}
	}
}
