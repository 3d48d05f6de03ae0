package slotcache

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
)

// Waiting is what is known of a pod that waits: what it requests, which does not change, and why it waits.
type Waiting struct {
	*waitreason.Record
	Request *ledger.Request
}

// RequestOf is what the pod requests of slots; nil for none. It is not to be changed.
func (b *Cache) RequestOf(pod *v1.Pod) (*ledger.Request, error) {
	if w, waits := b.Queue.Get(pod.UID); waits {
		return w.Request, nil
	}
	return slotrequest.Of(pod)
}

// reasonOf is why the pod waits, as label reason has it; ours is whether this process
// schedules it.
func reasonOf(pod *v1.Pod, w *waitreason.Record, ours bool) string {
	switch {
	case !ours:
		return waitreason.OtherScheduler
	case len(pod.Spec.SchedulingGates) > 0:
		return waitreason.Gated
	default:
		return waitreason.Names[w.Reason()]
	}
}

// unknown is label configuration of pods that request what is no Configuration's: names
// that a pod's author makes up must not become time series. No Configuration can have it.
const unknown = "<unknown>"

// waitingKey are the labels of the metrics of waiting pods.
type waitingKey struct{ configuration, reason string }

// waitingCount is how many pods wait, and since when the oldest.
type waitingCount struct {
	pods   int
	oldest time.Time
}

// countWaiting counts the waiting pods by the Configuration that they ask for, itself or
// one of its Instances. The cache's lock is held for the names alone that pods ask for,
// however many pods do. The caller does not hold mu.
func (b *Cache) countWaiting() map[waitingKey]waitingCount {
	type waitingPod struct {
		*v1.Pod
		record    *waitreason.Record
		resources []string
	}
	var pods []waitingPod
	configurations := map[string]string{} // by resource
	b.Queue.Each(func(pod *v1.Pod, w *Waiting, resources []string) {
		pods = append(pods, waitingPod{pod, w.Record, resources})
		for _, resource := range resources {
			configurations[resource] = unknown
		}
	})
	b.mu.RLock()
	profiles := maps.Clone(b.profiles)
	for resource := range configurations {
		if c := b.ledger.Configuration(resource); c != nil {
			configurations[resource] = c.Name
		}
	}
	b.mu.RUnlock()

	counts := map[waitingKey]waitingCount{}
	for _, p := range pods {
		asked := sets.New[string]()
		for _, resource := range p.resources { // of one Configuration it may ask for several Instances
			asked.Insert(configurations[resource])
		}
		reason := reasonOf(p.Pod, p.record, profiles[p.Spec.SchedulerName] != nil)
		for configuration := range asked {
			key := waitingKey{configuration, reason}
			count := counts[key]
			count.pods++
			if created := p.CreationTimestamp.Time; count.pods == 1 || created.Before(count.oldest) {
				count.oldest = created
			}
			counts[key] = count
		}
	}
	return counts
}
