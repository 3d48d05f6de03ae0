package brokers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// startsWithin is how long a new broker may take to become Ready before the rollout
// goes on without it, if others of its spec are Ready.
const startsWithin = time.Minute

// rollout lets Ready brokers of an earlier spec be replaced on one node of a
// Configuration after the other. Its zero value is ready for use; its methods may be
// called concurrently.
type rollout struct {
	mu    sync.Mutex
	turns map[types.NamespacedName]map[turn]grant // by Configuration
}

// turn is one Instance's broker on one node.
type turn struct{ instance, node string }

// grant is when a turn was taken, and the pod that it was taken for.
type grant struct {
	at       time.Time
	replaced types.UID
}

// forget forgets the turns of a Configuration that is gone.
func (r *rollout) forget(configuration types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.turns, configuration)
}

// mayReplace reports whether the pod, the Instance's broker on the node, may go now, and
// takes the turn. pods are all broker pods of the Configuration in its namespace, hash is
// of its spec.
func (r *rollout) mayReplace(configuration types.NamespacedName, t turn, pod types.UID, hash string, pods []*corev1.Pod, nodes map[string]inventory.Node, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turns == nil {
		r.turns = map[types.NamespacedName]map[turn]grant{}
	}
	granted := r.turns[configuration]
	for other, g := range granted {
		// Over when its successor is there, which counts by itself then.
		if now.Sub(g.at) > startsWithin || hasSuccessor(other, g.replaced, hash, pods) {
			delete(granted, other)
		}
	}
	for other := range granted {
		if other.node != t.node {
			return false
		}
	}
	if !isTurn(t.node, hash, pods, nodes, now) {
		return false
	}
	if granted == nil {
		granted = map[turn]grant{}
		r.turns[configuration] = granted
	}
	granted[t] = grant{now, pod}
	return true
}

// hasSuccessor reports whether there is another pod than the one that was replaced. The
// spec alone does not tell them apart: other properties of the device replace pods, too.
func hasSuccessor(t turn, replaced types.UID, hash string, pods []*corev1.Pod) bool {
	for _, p := range pods {
		if p.UID != replaced && p.Labels[naming.Instance] == t.instance && p.Labels[naming.TargetNode] == naming.Cut(t.node) &&
			p.DeletionTimestamp == nil && p.Annotations[naming.SpecHash] == hash {
			return true
		}
	}
	return false
}

// isTurn reports whether no broker of another node is being replaced: it is neither
// going, nor is its successor starting. A successor that does not become Ready in time
// counts only while none of its spec is Ready: then the spec may be bad, else the
// device.
func isTurn(node, hash string, pods []*corev1.Pod, nodes map[string]inventory.Node, now time.Time) bool {
	late, anyReady := false, false
	for _, p := range pods {
		current := p.Annotations[naming.SpecHash] == hash
		if current && isReady(p) {
			anyReady = true
		}
		if p.Labels[naming.TargetNode] == naming.Cut(node) {
			continue
		}
		if n, exists := nodes[p.Spec.NodeName]; exists && !n.Ready {
			continue // it goes when it can
		}
		switch {
		case p.DeletionTimestamp != nil:
			return false
		case !current || isReady(p):
		case isEnded(p) || now.Sub(p.CreationTimestamp.Time) > startsWithin:
			late = true
		default:
			return false
		}
	}
	return anyReady || !late
}
