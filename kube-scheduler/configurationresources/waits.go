package configurationresources

import (
	"math/bits"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// reason says why a pod waits, for metrics. Where nodes differ the last one of these
// counts: the pod is nearest to running there.
type reason uint8

const (
	notTried reason = iota
	refusedElsewhere
	invalidRequest
	resourceNameTaken
	ledgerNotRead
	namespaceNotAllowed
	unknownResource
	noNode
	apart
	notReachable
	impossible
	held
	notAdvertised
	slotsFree
	numReasons
)

// reasonNames are the values of label reason. Values that do not depend on the last try
// are below.
var reasonNames = [numReasons]string{
	notTried:            "NotTried",
	refusedElsewhere:    other,
	invalidRequest:      "InvalidRequest",
	resourceNameTaken:   "ResourceNameTaken",
	ledgerNotRead:       "DevicesNotRead",
	namespaceNotAllowed: "NamespaceNotAllowed",
	unknownResource:     "UnknownResource",
	noNode:              "NoNode",
	apart:               "Apart",
	notReachable:        "NotReachable",
	impossible:          "TooFew",
	held:                "Held",
	notAdvertised:       "NotAdvertised",
	slotsFree:           other,
}

const (
	// other is the reason of a pod for which there are slots, and of one that other
	// plugins refuse on all nodes before this one is asked.
	other = "Other"
	// gated pods have spec.schedulingGates, and are not tried.
	gated = "Gated"
	// otherScheduler is that of pods whose spec.schedulerName is none of this process's.
	otherScheduler = "OtherScheduler"
)

// shortfallReasons are those of the ledger, by its own.
var shortfallReasons = [...]reason{
	ledger.Unknown: unknownResource, ledger.NoNode: noNode, ledger.NoCommonNode: apart,
	ledger.NotReachable: notReachable, ledger.Impossible: impossible, ledger.Held: held,
}

func reasonFor(s *ledger.Shortfall) reason {
	if int(s.Reason) >= len(shortfallReasons) {
		return refusedElsewhere
	}
	return shortfallReasons[s.Reason]
}

// podWait is how long a pod has waited since this process knows it, and for what. The
// slot cache's lock protects all but seen. A nil podWait takes note of nothing.
type podWait struct {
	// since is when the last try began, or when the pod became known.
	since time.Time
	// seen has a bit for each reason that the last try has met.
	seen atomic.Uint32
	// spent is the time between tries, by the reason of the one before.
	spent [numReasons]time.Duration
}

// reason is why the last try failed, as far as it has got.
func (w *podWait) reason() reason {
	if seen := w.seen.Load(); seen != 0 {
		return reason(bits.Len32(seen) - 1)
	}
	return notTried
}

// try begins a try.
func (w *podWait) try(now time.Time) {
	w.spent[w.reason()] += now.Sub(w.since)
	w.since = now
	w.seen.Store(1 << refusedElsewhere)
}

// meet takes note of a reason. Any number of goroutines may do so at once.
func (w *podWait) meet(r reason) {
	if w != nil && w.seen.Load()&(1<<r) == 0 {
		w.seen.Or(1 << r)
	}
}

// refuse begins a try of a pod that is refused at once, for the reason.
func (b *slotCache) refuse(pod *v1.Pod, r reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, waits := b.queue.Get(pod.UID); waits {
		w.try(b.clock.Now())
		w.meet(r)
	}
}

// reasonOf is why the pod waits, as label reason has it. The caller holds mu.
func (b *slotCache) reasonOf(pod *v1.Pod, w *podWait) string {
	switch {
	case b.profiles[pod.Spec.SchedulerName] == nil:
		return otherScheduler
	case len(pod.Spec.SchedulingGates) > 0:
		return gated
	default:
		return reasonNames[w.reason()]
	}
}

// observeWait counts how long a pod that is bound now has waited until its last try. Of
// pods that this process never tried, that is nothing. The caller holds mu.
func (b *slotCache) observeWait(uid types.UID) {
	w, waits := b.queue.Get(uid)
	if !waits {
		return
	}
	for r, spent := range w.spent {
		if spent > 0 {
			waitingSeconds.WithLabelValues(reasonNames[r]).Observe(spent.Seconds())
		}
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
// one of its Instances. The caller holds mu.
func (b *slotCache) countWaiting() map[waitingKey]waitingCount {
	counts := map[waitingKey]waitingCount{}
	b.queue.Each(func(pod *v1.Pod, w *podWait, resources []string) {
		configurations := sets.New[string]()
		for _, resource := range resources { // of one Configuration it may ask for several Instances
			if c := b.ledger.Configuration(resource); c != nil {
				configurations.Insert(c.Name)
			} else {
				configurations.Insert(unknown)
			}
		}
		for configuration := range configurations {
			key := waitingKey{configuration, b.reasonOf(pod, w)}
			count := counts[key]
			count.pods++
			if created := pod.CreationTimestamp.Time; count.pods == 1 || created.Before(count.oldest) {
				count.oldest = created
			}
			counts[key] = count
		}
	})
	return counts
}
