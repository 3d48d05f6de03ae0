package requeue

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Options of a Queue. R is what the plugin wants to know of a waiting pod.
type Options[R any] struct {
	Logger    klog.Logger
	Activator fwk.PodActivator
	Clock     clock.Clock
	// Possible returns a function that reports whether a pod could have something of the
	// key that is free, as things are now. It is called without the Queue's lock.
	Possible func(key string) func(*v1.Pod, R) bool
	// MinPreemptorPriority is the lowest priority with which a pod can have one of the
	// slots by preemption, as things are now; false if none suffices. nil if there are no
	// slots. It is called like Possible.
	MinPreemptorPriority func([]slot.Name) (int32, bool)
	// Finishes says that the plugin calls Finished or Reserved in each try. A try without
	// either is made again after RetryInterval, each next one after twice the time: the framework asks no further PostFilter
	// plugin once one has failed, as DefaultPreemption does when a victim is gone while it
	// looks, and then nobody has asked what this plugin could preempt.
	Finishes bool
	// FirstBatch is how many pods are activated at once; 0 means DefaultFirstBatch.
	FirstBatch int
}

// Queue is safe for use by several goroutines. It calls nobody while it holds its lock,
// so that its methods may be called under the locks of the plugin.
type Queue[R any] struct {
	Options[R]
	signal chan struct{} // has an entry when there may be something to do

	mu   sync.Mutex
	pods map[types.UID]*waiting[R]
	// byKey has the pods that wait for a key; those that wait for any key are under
	// anyKey.
	byKey  map[string]map[types.UID]*waiting[R]
	events map[string]*keyEvents
	// now numbers events and tries in their order.
	now     uint64
	started bool
	// retries are of pods that are activated whatever happens, unless they are tried
	// before.
	retries map[types.UID]retry
	// unfinished are tries that are neither Finished nor Reserved, and when they are
	// given up.
	unfinished map[types.UID]time.Time
	// next is when Run looks again by itself; zero before it did.
	next time.Time
}

// waiting is a pod that waits.
type waiting[R any] struct {
	pod     *v1.Pod
	request R
	keys    []string
	result  result
	lastTry uint64 // its number; 0 if there was none
	givenUp int    // tries that were not finished, in a row
	from    int    // where the next try goes on, see Unfinished
}

// result is what came of a pod's last try so far.
type result int

const (
	notTried result = iota
	rejected
	reserved // it reserved something, or preempted pods for it
)

// keyEvents are what happened to a key since the last batch that left nobody over.
type keyEvents struct {
	number  uint64 // of the last one
	changes int    // of what is known of them: a batch that is being made has not seen the last
	free    bool
	// preemptible are slots that some pods may have by preemption.
	preemptible sets.Set[slot.Name]
	batch       int       // the size of the next one
	nextBatch   time.Time // not before
}

// retry is when a pod is activated again.
type retry struct {
	at    time.Time
	delay time.Duration // before the next retry
	// activated is when it was activated last and not tried since; zero if it was not.
	activated time.Time
}

const (
	// DefaultFirstBatch is how many pods are activated at once.
	DefaultFirstBatch = 16
	// BatchInterval is the time that they have to take what is free, before twice as many
	// are activated.
	BatchInterval = 100 * time.Millisecond
	// RetryInterval is the time that an activated pod has to be tried before it is
	// activated again: the framework drops pods that a PreEnqueue plugin keeps back, as
	// DefaultPreemption does with a preemptor while it deletes the victims. Each next
	// retry comes after twice the time, up to maxRetryInterval.
	RetryInterval    = time.Second
	maxRetryInterval = time.Minute
	// maxUnfinishedInterval is as long as the framework leaves any pod alone
	// (podMaxInUnschedulablePodsDuration).
	maxUnfinishedInterval = 5 * time.Minute

	anyKey = ""
)

// New makes a Queue. Until Start is called it activates nobody.
func New[R any](o Options[R]) *Queue[R] {
	if o.FirstBatch == 0 {
		o.FirstBatch = DefaultFirstBatch
	}
	return &Queue[R]{Options: o, signal: make(chan struct{}, 1), pods: map[types.UID]*waiting[R]{}, byKey: map[string]map[types.UID]*waiting[R]{},
		events: map[string]*keyEvents{}, retries: map[types.UID]retry{}, unfinished: map[types.UID]time.Time{}}
}

// Start has all pods tried that were tried before the plugin knew enough, and events
// answered from now on.
func (q *Queue[R]) Start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started = true
	for uid := range q.pods {
		q.retryAt(uid, q.Clock.Now())
	}
}

// Add enters a pod that waits for something of the keys, of any key if none is given, or
// updates it.
func (q *Queue[R]) Add(pod *v1.Pod, request R, keys ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[pod.UID]; w != nil {
		w.pod, w.request = pod, request // what a pod requests does not change
		return
	}
	if len(keys) == 0 {
		keys = []string{anyKey}
	}
	w := &waiting[R]{pod: pod, request: request, keys: keys}
	q.pods[pod.UID] = w
	for _, key := range keys {
		if q.byKey[key] == nil {
			q.byKey[key] = map[types.UID]*waiting[R]{}
		}
		q.byKey[key][pod.UID] = w
	}
}

// Delete forgets a pod that waits no longer.
func (q *Queue[R]) Delete(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.pods[uid]
	if w == nil {
		return
	}
	delete(q.pods, uid)
	delete(q.retries, uid)
	delete(q.unfinished, uid)
	for _, key := range w.keys {
		if delete(q.byKey[key], uid); len(q.byKey[key]) == 0 {
			delete(q.byKey, key)
		}
	}
}

// Get returns what the plugin gave with the pod.
func (q *Queue[R]) Get(uid types.UID) (request R, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		return w.request, true
	}
	return request, false
}

// Idle reports whether no event is left to answer.
func (q *Queue[R]) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events) == 0
}

// Each calls visit with all pods and the keys that they wait for, under the Queue's lock.
func (q *Queue[R]) Each(visit func(pod *v1.Pod, request R, keys []string)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.pods {
		visit(w.pod, w.request, w.keys)
	}
}

// Try records that a try of the pod begins. To be called before the plugin looks at what
// is free: events from now on are news to the pod.
func (q *Queue[R]) Try(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		q.now++
		w.lastTry, w.result = q.now, rejected // until it reserves
		delete(q.retries, uid)
		if q.Finishes {
			q.unfinished[uid] = q.Clock.Now().Add(min(RetryInterval<<min(w.givenUp, 10), maxRetryInterval))
			q.lookBy(q.unfinished[uid])
		}
	}
}

// Asked records that the plugin was asked all that it is asked for a pod without a node, so that
// nothing is given up while it thinks: Finished, Reserved or Unfinished follows. It returns
// what Unfinished said at the last try; 0 when that was finished.
func (q *Queue[R]) Asked(uid types.UID) (from int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.unfinished, uid)
	if w := q.pods[uid]; w != nil {
		from = w.from
	}
	return from
}

// Unfinished records that the try ended before all was looked at, and where the next one goes
// on. The pod is tried again after RetryInterval, and after twice the time when that does not
// finish either, up to maxUnfinishedInterval.
func (q *Queue[R]) Unfinished(uid types.UID, from int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		w.from = from
		q.retryAt(uid, q.Clock.Now().Add(min(RetryInterval<<min(w.givenUp, 10), maxUnfinishedInterval)))
		w.givenUp++
	}
}

// Finished records that the plugin has answered for good.
func (q *Queue[R]) Finished(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finished(uid)
}

// finished is Finished for who holds mu.
func (q *Queue[R]) finished(uid types.UID) {
	delete(q.unfinished, uid)
	if w := q.pods[uid]; w != nil {
		w.givenUp, w.from = 0, 0
	}
}

// Reserved records that the pod's try reserved something, or preempted pods for it. If it
// gives that back, the framework tries it again, after a while; others must not have it
// tried by giving back what they reserved: two pods that fail after Reserve would activate
// each other for ever.
func (q *Queue[R]) Reserved(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		w.result = reserved
		q.finished(uid)
	}
}

// RetryNow has the pods tried at once.
func (q *Queue[R]) RetryNow(uids ...types.UID) { q.activateIn(0, uids) }

// RetryLater has the pod tried in a while, past the framework's backoff: no event may follow
// that would have it tried, and at once it would be tried over and over for as long as
// nothing changes.
func (q *Queue[R]) RetryLater(uid types.UID) { q.activateIn(RetryInterval, []types.UID{uid}) }

func (q *Queue[R]) activateIn(delay time.Duration, uids []types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, uid := range uids {
		if q.pods[uid] != nil {
			q.retryAt(uid, q.Clock.Now().Add(delay))
		}
	}
}

// retryAt has a pod activated at a time, if it is not to be before. The caller holds mu.
func (q *Queue[R]) retryAt(uid types.UID, at time.Time) {
	r, known := q.retries[uid]
	if known && !at.Before(r.at) {
		return
	}
	r.at, r.delay = at, RetryInterval
	q.retries[uid] = r
	q.lookBy(at)
}

// look has Run look whether there is something to do.
func (q *Queue[R]) look() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// lookBy has Run look at the time, at the latest. The caller holds mu.
func (q *Queue[R]) lookBy(at time.Time) {
	if q.next.IsZero() || at.Before(q.next) {
		q.look()
	}
}

// keysToAnswer returns the keys on which there are events that have been waited for long
// enough, in order. The caller holds mu.
func (q *Queue[R]) keysToAnswer(now time.Time) []string {
	var keys []string
	for key, e := range q.events {
		if !now.Before(e.nextBatch) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
