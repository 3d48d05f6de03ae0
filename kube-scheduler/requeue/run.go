package requeue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Run activates pods until ctx is done.
func (q *Queue[R]) Run(ctx context.Context) {
	for {
		wait, more := q.Step()
		if !more || wait > RetryInterval {
			wait = RetryInterval // a retry that is set meanwhile is not due before
		}
		timer := q.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-q.signal:
		case <-timer.C():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// Step activates the pods whose time has come. It returns how long to wait before the
// next Step if nothing happens; more is false if nothing is to be done until something
// happens. It is for Run, and for tests; one goroutine may call it at a time.
func (q *Queue[R]) Step() (wait time.Duration, more bool) {
	now := q.Clock.Now()
	q.mu.Lock()
	activate := q.retried(now)
	// Events and pods are read at once: an event that comes later is found by the next Step,
	// with the pods that wait by then.
	events, lists := map[string]keyEvents{}, map[string][]candidate[R]{}
	for key, e := range q.events {
		if !now.Before(e.nextBatch) {
			seen := *e
			seen.preemptible = e.preemptible.Clone()
			events[key], lists[key] = seen, q.candidates(key)
		}
	}
	if len(events) > 0 {
		lists[anyKey] = q.candidates(anyKey)
	}
	q.mu.Unlock()
	slices.SortFunc(lists[anyKey], firstToTry) // once for all keys
	for _, key := range slices.Sorted(maps.Keys(events)) {
		all := slices.Concat(lists[key], lists[anyKey])
		slices.SortFunc(all, firstToTry)
		q.nextBatch(now, key, events[key], all, activate)
	}
	if len(activate) > 0 {
		q.Activator.Activate(q.Logger, activate)
	}
	return q.nextStep(now)
}

// candidate is a waiting pod as a Step finds it.
type candidate[R any] struct {
	pod     *v1.Pod
	request R
	lastTry uint64
}

// candidates are the pods that wait for the key, in no order. The caller holds mu.
func (q *Queue[R]) candidates(key string) []candidate[R] {
	list := make([]candidate[R], 0, len(q.byKey[key]))
	for _, w := range q.byKey[key] {
		list = append(list, candidate[R]{w.pod, w.request, w.lastTry})
	}
	return list
}

// firstToTry orders by priority, then age.
func firstToTry[R any](x, y candidate[R]) int {
	return cmp.Or(cmp.Compare(corev1helpers.PodPriority(y.pod), corev1helpers.PodPriority(x.pod)),
		x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time), cmp.Compare(x.pod.UID, y.pod.UID))
}

// retried returns the pods that are to be activated by now, whatever happened. The caller holds
// mu.
func (q *Queue[R]) retried(now time.Time) map[string]*v1.Pod {
	pods := map[string]*v1.Pod{}
	for uid, r := range q.retries {
		if now.Before(r.at) {
			continue
		}
		w := q.pods[uid]
		if r.unlessFinished {
			w.givenUp++
		}
		pods[string(uid)] = w.pod
		q.retries[uid] = retry{at: now.Add(r.delay), delay: min(2*r.delay, maxRetryInterval), activated: now}
	}
	return pods
}

// nextBatch adds the key's next batch to the pods that are to be activated. candidates
// are in order, and as of the time of the events.
func (q *Queue[R]) nextBatch(now time.Time, key string, e keyEvents, candidates []candidate[R], activate map[string]*v1.Pod) {
	possible := func(*v1.Pod, R) bool { return false }
	if e.free {
		possible = q.Possible(key)
	}
	least, preemptible := int32(0), false
	if len(e.preemptible) > 0 {
		least, preemptible = q.MinPreemptorPriority(e.preemptible.UnsortedList())
	}
	batch, left := 0, false
	for _, c := range candidates {
		if c.lastTry >= e.number || activate[string(c.pod.UID)] != nil || !possible(c.pod, c.request) && !(preemptible && preempts(c.pod, least)) {
			continue
		}
		if left = batch == e.batch; left {
			break
		}
		if q.activates(now, c.pod.UID) {
			batch++
			activate[string(c.pod.UID)] = c.pod
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !left && q.events[key].changes == e.changes {
		delete(q.events, key)
		return
	}
	q.events[key].batch, q.events[key].nextBatch = 2*e.batch, now.Add(BatchInterval)
}

// activates records that an event activates the pod. It reports false when that is not to be: the
// pod was activated a moment ago and has not been tried yet, so that it is activated again soon;
// or it waits no longer.
func (q *Queue[R]) activates(now time.Time, uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w, r := q.pods[uid], q.retries[uid]
	if w == nil {
		return false
	}
	if soon := r.activated.Add(RetryInterval); now.Before(soon) {
		if soon.Before(r.at) {
			r.at, r.delay = soon, RetryInterval
			q.retries[uid] = r
		}
		return false
	}
	q.retries[uid] = retry{at: now.Add(RetryInterval), delay: 2 * RetryInterval, activated: now}
	return true
}

// nextStep returns when there is something to do again.
func (q *Queue[R]) nextStep(now time.Time) (wait time.Duration, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	earliest := func(at time.Time) {
		if left := max(0, at.Sub(now)); !more || left < wait {
			wait, more = left, true
		}
	}
	for _, r := range q.retries {
		earliest(r.at)
	}
	for _, e := range q.events {
		earliest(e.nextBatch)
	}
	return wait, more
}

// preempts reports whether the pod may preempt others if that takes at least the priority.
func preempts(pod *v1.Pod, least int32) bool {
	never := pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
	return !never && corev1helpers.PodPriority(pod) >= least
}
