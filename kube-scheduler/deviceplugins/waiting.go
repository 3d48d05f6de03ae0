package deviceplugins

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

const (
	// firstWoken is how many pods are tried at once for what a node gained.
	firstWoken = 16
	// roundInterval is the time that they have to take it, before twice as many are
	// tried, of those that still fit.
	roundInterval = 200 * time.Millisecond
)

// waiting are the pods that ask plugins for something and are not bound, and the
// nodes that gained something since they were refused.
//
// Pods are woken by the account and not by the framework's events, since the
// framework's informer handlers may run before the account's: a pod would be tried
// too early, and never again. And a pod that would not fit is not tried at all.
type waiting struct {
	mu    sync.Mutex
	pods  map[apitypes.UID]*waiter
	tries int64 // counts them
	dirty map[string]bool
	sizes map[string]int // of the next round, by node
	// checks are for pods that were activated: were they tried?
	checks []recheck
	poke   chan struct{} // has an entry when there may be something to do
}

// recheck is when to see whether pods were tried, and how long after that again.
type recheck struct {
	pods  []waiter
	at    time.Time
	delay time.Duration
}

type waiter struct {
	pod  *v1.Pod
	req  *request
	kind string // pods of one kind ask for the same: they fit a node alike
	try  int64  // which one this is, of all pods' tries
	// refused is whether this plugin refused the pod when it was tried last, and
	// faulted whether it did so because a plugin failed.
	refused, faulted bool
}

func newWaiting() *waiting {
	return &waiting{pods: map[apitypes.UID]*waiter{}, dirty: map[string]bool{}, sizes: map[string]int{}, poke: make(chan struct{}, 1)}
}

// expect remembers a pod that is about to be tried.
func (a *account) expect(pod *v1.Pod, r *request) {
	w := a.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	// A pod that the informer has deleted would never be forgotten again.
	if live, err := a.pods.Pods(pod.Namespace).Get(pod.Name); err == nil && live.UID == pod.UID && live.Spec.NodeName == "" {
		w.tries++
		w.pods[pod.UID] = &waiter{pod: pod, req: r, kind: r.kind(), try: w.tries}
	}
}

// refused remembers that the pod was refused.
func (w *waiting) refused(uid apitypes.UID, faulted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiter := w.pods[uid]; waiter != nil {
		waiter.refused, waiter.faulted = true, waiter.faulted || faulted
	}
}

// settle remembers that the pod has a node. If it is not bound there after all, the
// framework tries it again, after a while: to be woken at once by what it gives back
// itself would go round in circles.
func (w *waiting) settle(uid apitypes.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiter := w.pods[uid]; waiter != nil {
		waiter.refused, waiter.faulted = false, false
	}
}

func (w *waiting) forget(uid apitypes.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// markDirty says that a node may have gained something.
func (w *waiting) markDirty(node string) {
	w.mu.Lock()
	w.dirty[node] = true
	w.mu.Unlock()
	w.look()
}

// look has the waiting pods looked at.
func (w *waiting) look() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

func (w *waiting) takeDirty() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	nodes := slices.Sorted(maps.Keys(w.dirty))
	clear(w.dirty)
	return nodes
}

// refusedPods returns those to try again, the first to try first.
func (w *waiting) refusedPods() []waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []waiter
	for _, one := range w.pods {
		if one.refused {
			all = append(all, *one)
		}
	}
	slices.SortFunc(all, func(x, y waiter) int {
		return cmp.Or(cmp.Compare(corev1helpers.PodPriority(y.pod), corev1helpers.PodPriority(x.pod)),
			x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time), cmp.Compare(x.pod.UID, y.pod.UID))
	})
	return all
}

// follow wakes pods until ctx is done.
func (a *account) follow(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), a.sources...) {
		a.logger.Info("Devices of nodes and pods are in step with the API")
		a.waiting.takeDirty() // all pods are tried now
		a.activate(a.waiting.refusedPods())
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.waiting.poke:
			a.wakeAll()
		}
	}
}

func (a *account) wakeAll() {
	a.pushAgain(time.Now())
	nodes := a.waiting.takeDirty()
	refused := a.waiting.refusedPods()
	for _, node := range nodes {
		tried := a.wake(node, refused)
		refused = slices.DeleteFunc(refused, func(one waiter) bool { return tried[one.pod.UID] })
	}
}

// wake has those of the refused pods tried that fit the node now: some at once, and
// the rest only while they still fit. One device must not send a thousand pods
// through the scheduler. It returns who is tried.
func (a *account) wake(node string, refused []waiter) map[apitypes.UID]bool {
	w := a.waiting
	w.mu.Lock()
	size := max(firstWoken, w.sizes[node])
	delete(w.sizes, node)
	w.mu.Unlock()
	n := a.host.Node(node)
	if n == nil {
		return nil
	}
	var fitting []waiter
	fits := map[string]bool{} // by kind
	for _, one := range refused {
		if _, judged := fits[one.kind]; !judged {
			fits[one.kind] = a.judge(node, n, one.req).fits()
		}
		if !fits[one.kind] {
			continue
		}
		if len(fitting) == size {
			w.mu.Lock()
			w.sizes[node] = 2 * size
			w.mu.Unlock()
			time.AfterFunc(roundInterval, func() { w.markDirty(node) })
			break
		}
		fitting = append(fitting, one)
	}
	a.activate(fitting)
	tried := make(map[apitypes.UID]bool, len(fitting))
	for _, one := range fitting {
		tried[one.pod.UID] = true
	}
	return tried
}

// firstCheck is the time that an activated pod has to be tried, before it is
// activated again; then twice that, and so on.
const firstCheck = time.Second

// activate has the pods tried.
func (a *account) activate(waiters []waiter) { a.push(waiters, firstCheck) }

// push has the pods tried, and sees later whether they were: the framework drops
// pods that a PreEnqueue plugin keeps back, as DefaultPreemption does with a
// preemptor while it deletes the victims.
func (a *account) push(waiters []waiter, delay time.Duration) {
	if len(waiters) == 0 {
		return
	}
	pods := make(map[string]*v1.Pod, len(waiters))
	for _, one := range waiters {
		pods[string(one.pod.UID)] = one.pod
	}
	a.activator.Activate(a.logger, pods)
	w := a.waiting
	w.mu.Lock()
	w.checks = append(w.checks, recheck{pods: waiters, at: time.Now().Add(delay), delay: delay})
	w.mu.Unlock()
	time.AfterFunc(delay, w.look)
}

// pushAgain has those pods tried again that were not when it is time to check.
func (a *account) pushAgain(now time.Time) {
	w := a.waiting
	w.mu.Lock()
	var due []recheck
	w.checks = slices.DeleteFunc(w.checks, func(c recheck) bool {
		if now.Before(c.at) {
			return false
		}
		c.pods = slices.DeleteFunc(c.pods, func(one waiter) bool {
			current := w.pods[one.pod.UID]
			return current == nil || current.try != one.try || !current.refused
		})
		due = append(due, c)
		return true
	})
	w.mu.Unlock()
	for _, c := range due {
		a.push(c.pods, min(2*c.delay, maxRetry))
	}
}
