package requeue

import (
	"sync"
	"time"

	"github.com/google/btree"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types/slot"
	"github.com/kubeslot/kubeslot/wake"
)

// Options of a Queue. R is what the plugin wants to know of a waiting pod.
type Options[R any] struct {
	Logger    klog.Logger
	Activator fwk.PodActivator
	Clock     clock.Clock
	// Possible returns a function that reports whether a pod could have something of the
	// key that is free, as things are now; nil if no pod could. It is called without the
	// Queue's lock.
	Possible func(key string) func(R) bool
	// MinPreemptorPriority is the lowest priority with which a pod can have one of the
	// slots by preemption, as things are now; false if none suffices. nil if there are no
	// slots. It is called like Possible.
	MinPreemptorPriority func([]slot.Name) (int32, bool)
	// Finishes says that the plugin calls Asked or Reserved in each try. A try without
	// either is made again after RetryInterval, each next one after twice the time: the framework
	// asks no further PostFilter plugin once one has failed, as DefaultPreemption does when a victim
	// is gone while it looks, and then nobody has asked what this plugin could preempt.
	Finishes bool
	// FirstBatch is how many pods are activated at once; 0 means DefaultFirstBatch.
	FirstBatch int
}

// Queue is safe for use by several goroutines. It calls nobody while it holds its lock,
// so that its methods may be called under the locks of the plugin.
type Queue[R any] struct {
	Options[R]
	signal wake.Signal // has an entry when there may be something to do

	mu   sync.Mutex
	pods map[types.UID]*waiting[R]
	// lines have the pods that events help, by key, the first to try first. Those that wait for
	// any key are under anyKey.
	lines  map[string]*btree.BTreeG[*waiting[R]]
	spare  *btree.FreeListG[*waiting[R]] // of the lines
	events map[string]*keyEvents[R]
	agenda *btree.BTreeG[*task] // the first to do first
	now    uint64               // numbers events and tries in their order
}

const (
	// DefaultFirstBatch is how many pods are activated at once.
	DefaultFirstBatch = 16
	// maxPerStep bounds the pods that a Step activates for a retry, those of a batch, and those
	// looked at for one, so that a Step takes less than 1 ms, however many pods wait.
	maxPerStep = 128
	// RetryInterval is the time that an activated pod has to be tried before it is
	// activated again, and before its batch waits for it no longer: the framework drops pods
	// that a PreEnqueue plugin keeps back, as DefaultPreemption does with a preemptor while it
	// deletes the victims. Each next retry comes after twice the time, up to maxRetryInterval.
	RetryInterval    = time.Second
	maxRetryInterval = time.Minute
	// maxUnfinishedInterval is as long as the framework leaves any pod alone
	// (podMaxInUnschedulablePodsDuration).
	maxUnfinishedInterval = 5 * time.Minute

	anyKey = ""
	degree = 16 // of the trees
)

// New makes a Queue. It activates pods once Run is called.
func New[R any](o Options[R]) *Queue[R] {
	return &Queue[R]{Options: o, signal: wake.New(), pods: map[types.UID]*waiting[R]{},
		lines:  map[string]*btree.BTreeG[*waiting[R]]{},
		spare:  btree.NewFreeListG[*waiting[R]](btree.DefaultFreeListSize),
		events: map[string]*keyEvents[R]{}, agenda: btree.NewG(degree, sooner)}
}

// Add enters a pod that waits for something of the keys, of any key if none is given, or
// updates it. Either all pods of a Queue wait for any key, or none does.
func (q *Queue[R]) Add(pod *v1.Pod, request R, keys ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[pod.UID]; w != nil {
		w.pod, w.request = pod, request // neither its priority nor what it requests changes
		return
	}
	if len(keys) == 0 {
		keys = []string{anyKey}
	}
	policy := pod.Spec.PreemptionPolicy
	w := &waiting[R]{pod: pod, request: request, keys: keys, priority: corev1helpers.PodPriority(pod),
		never: policy != nil && *policy == v1.PreemptNever, giver: giverOf(pod)}
	w.retry.do = func(now time.Time, pods map[string]*v1.Pod) int {
		if w.state == trying {
			w.givenUp++
		}
		q.activate(w, now, pods)
		return 1
	}
	q.pods[pod.UID] = w
}

// with calls do with the pod if it waits.
func (q *Queue[R]) with(uid types.UID, do func(*waiting[R])) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.pods[uid]; w != nil {
		do(w)
	}
}

// Delete forgets a pod that waits no longer.
func (q *Queue[R]) Delete(uid types.UID) {
	q.with(uid, func(w *waiting[R]) {
		delete(q.pods, uid)
		q.become(w, untried, time.Time{})
		q.leaveBatch(w)
	})
}

// Get returns what the plugin gave with the pod.
func (q *Queue[R]) Get(uid types.UID) (request R, waits bool) {
	q.with(uid, func(w *waiting[R]) { request, waits = w.request, true })
	return request, waits
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

// firstToTry orders by priority, then age.
func firstToTry[R any](x, y *waiting[R]) bool {
	if x.priority != y.priority {
		return x.priority > y.priority
	}
	if order := x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time); order != 0 {
		return order < 0
	}
	return x.pod.UID < y.pod.UID
}
