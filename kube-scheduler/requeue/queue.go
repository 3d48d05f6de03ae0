package requeue

import (
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
	// Finishes says that the plugin calls Asked or Reserved in each try. A try without
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
}

// waiting is a pod that waits.
type waiting[R any] struct {
	pod     *v1.Pod
	request R
	keys    []string
	lastTry uint64 // its number; 0 if there was none
	// rejected is whether it was tried, and that try has neither reserved something nor
	// preempted pods for it.
	rejected bool
	// finished is whether its last try had an answer.
	finished bool
	givenUp  int // tries that were not finished, in a row
	from     int // where the next try goes on, see Unfinished
}

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
	// unlessFinished retries are of a try that goes on. It may end without an answer.
	unlessFinished bool
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
	return &Queue[R]{Options: o, signal: make(chan struct{}, 1), pods: map[types.UID]*waiting[R]{}, byKey: map[string]map[types.UID]*waiting[R]{},
		events: map[string]*keyEvents{}, retries: map[types.UID]retry{}}
}

// Start has all pods tried that were tried before the plugin knew enough, and events
// answered from now on.
func (q *Queue[R]) Start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started = true
	for uid := range q.pods {
		q.retryAfter(uid, 0)
	}
	q.look()
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
		if w.finished {
			w.givenUp, w.from = 0, 0
		}
		w.lastTry, w.finished = q.now, false
		w.rejected = true // until it reserves
		delete(q.retries, uid)
		if q.Finishes && w.pod.Spec.SchedulingGroup == nil { // a group's pods are not asked for one by one
			q.retries[uid] = retry{at: q.Clock.Now().Add(w.backoff(maxRetryInterval)), delay: RetryInterval, unlessFinished: true}
		}
	}
}

// backoff is how long after a try that was not finished the next one is made.
func (w *waiting[R]) backoff(most time.Duration) time.Duration {
	return min(RetryInterval<<min(w.givenUp, 10), most)
}

// Asked records that the plugin was asked all that it is asked for a pod without a node: it has
// an answer, for which it may take its time, or says that the try is Unfinished. Asked returns
// what Unfinished said at the last try; 0 when that was finished.
func (q *Queue[R]) Asked(uid types.UID) (from int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		q.finish(w)
		from = w.from
	}
	return from
}

// finish records that the try has an answer. The caller holds mu.
func (q *Queue[R]) finish(w *waiting[R]) {
	r := q.retries[w.pod.UID]
	// A try that took so long that it was given up does not end the backoff: the next one may too.
	w.finished = r.activated.IsZero()
	if r.unlessFinished {
		delete(q.retries, w.pod.UID)
	}
}

// Unfinished records that the try ended before all was looked at, and where the next one goes
// on. The pod is tried again after RetryInterval, and after twice the time when that does not
// finish either, up to maxUnfinishedInterval.
func (q *Queue[R]) Unfinished(uid types.UID, from int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		w.finished, w.from = false, from
		q.retryAfter(uid, w.backoff(maxUnfinishedInterval))
		w.givenUp++
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
		w.rejected = false
		q.finish(w)
	}
}

// RetryNow has the pods tried at once.
func (q *Queue[R]) RetryNow(uids ...types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, uid := range uids {
		q.retryAfter(uid, 0)
	}
	q.look()
}

// RetryLater has the pod tried in a while, past the framework's backoff: no event may follow
// that would have it tried, and at once it would be tried over and over for as long as
// nothing changes.
func (q *Queue[R]) RetryLater(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retryAfter(uid, RetryInterval)
}

// retryAfter has a pod that waits activated after a while, if it is not to be before. Run finds
// that by itself unless the while is shorter than RetryInterval. The caller holds mu.
func (q *Queue[R]) retryAfter(uid types.UID, while time.Duration) {
	at, r := q.Clock.Now().Add(while), q.retries[uid]
	if set := !r.at.IsZero() && !r.unlessFinished; q.pods[uid] == nil || set && !at.Before(r.at) {
		return
	}
	q.retries[uid] = retry{at: at, delay: RetryInterval, activated: r.activated}
}

// look has Run look whether there is something to do.
func (q *Queue[R]) look() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}
