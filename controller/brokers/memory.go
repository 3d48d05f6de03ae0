package brokers

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// memory is what no object says, or only those that are going. It is lost with the
// process: then a broker's failures count from what its pod or the Instance says, and
// Events are told again.
type memory struct {
	specHash string
	failures map[string]int      // in a row, by node
	pods     map[types.UID]known // of the spec with the hash
	ended    map[string]string   // why the last broker ended, by node, until another is Ready
	// refused is how often in a row the API server refused to create a broker, last at
	// refusedAt, and why.
	refused   int
	refusal   Problem
	refusedAt time.Time
}

// known is what this process has seen of a pod. Times are of its own clock: those in the API are
// of the API server's and the node's, either of which may be wrong by hours. Only of a pod that
// was there when this process began do those count.
type known struct {
	since time.Time // it was there
	ended time.Time // it had ended; zero: it has not
	// successor is the failures that its successor counts; 0: it is not removed for one.
	successor int
}

// next is what is to be remembered from now on: of nodes and pods that there are.
func (m memory) next(f *facts) memory {
	n := memory{failures: map[string]int{}, pods: map[types.UID]known{}, ended: map[string]string{}}
	if f.spec == nil || f.spec.err != nil {
		return n
	}
	before, began := m.failures, false
	switch n.specHash = f.spec.hash; m.specHash {
	case n.specHash:
		n.refused, n.refusedAt, n.refusal = m.refused, m.refusedAt, m.refusal
	case "": // this process has just begun
		before, began = notedFailures(f.instance, n.specHash), true
	default:
		before = nil
	}
	for _, node := range f.reach {
		if before[node] > 0 {
			n.failures[node] = before[node]
			n.ended[node] = m.ended[node]
		}
	}
	on, _ := f.byNode()
	for node, pod := range on {
		// Its failures are not its successor's. Of other properties they are: these may
		// change all the time.
		if hash := pod.Annotations[naming.SpecHash]; hash != "" && hash != f.spec.hash {
			delete(n.failures, node)
			delete(n.ended, node)
			continue
		}
		is := m.pods[pod.UID].see(pod, f.now, began)
		n.pods[pod.UID] = is
		switch {
		case isEnded(pod):
			n.failures[node], n.ended[node] = is.failures(pod, f.now), reasonEnded(pod)
		case is.successor > 0:
			n.failures[node] = is.successor
		case began && pod.DeletionTimestamp != nil && before[node] > 0: // as the Instance says
		default: // it may be deleted, and have a successor, without having ended
			n.failures[node] = is.failures(pod, f.now)
		}
		if !isEnded(pod) && (n.failures[node] == 0 || isReady(pod)) {
			delete(n.ended, node)
		}
	}
	return n
}

// refusedFor is for how long nothing is created, since the API server refused the last broker.
func (m *memory) refusedFor(now time.Time) time.Duration {
	if m.refused == 0 {
		return 0
	}
	return max(0, m.refusedAt.Add(delay(m.refused, maxRefusedDelay)).Sub(now))
}

// see is what is known of a pod now; began: this process has just begun.
func (k known) see(pod *corev1.Pod, now time.Time, began bool) known {
	if k.since.IsZero() {
		if k.since = now; began && pod.CreationTimestamp.Time.Before(now) {
			k.since = pod.CreationTimestamp.Time
		}
	}
	if isEnded(pod) && k.ended.IsZero() {
		if k.ended = now; began {
			k.ended = endedAt(pod, now)
		}
	}
	return k
}

// notedNow is what the Instance has to say before the pods that are due are removed:
// of their nodes, and of those whose broker has no successor yet.
func (f *facts) notedNow(due map[string]int) string {
	now := noted{Spec: f.spec.hash, Failures: map[string]int{}}
	on, _ := f.byNode()
	for node, failures := range notedFailures(f.instance, f.spec.hash) {
		if on[node] == nil && slices.Contains(f.reach, node) {
			now.Failures[node] = failures
		}
	}
	maps.Copy(now.Failures, due)
	return now.text()
}
