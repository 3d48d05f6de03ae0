package requeue

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Run activates pods until ctx is done.
func (q *Queue[R]) Run(ctx context.Context) {
	for {
		wait, more := q.Step()
		if !more {
			wait = maxRetryInterval // and look again then
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
	activate := q.retried(now)
	lists := map[string][]candidate[R]{}
	q.mu.Lock()
	// Events and pods are read at once: an event that comes later is found by the next Step,
	// with the pods that wait by then.
	keys, events := q.keysToAnswer(now), map[string]keyEvents{}
	for _, key := range keys {
		e := *q.events[key]
		e.preemptible = e.preemptible.Clone()
		events[key] = e
	}
	for _, key := range append(keys, anyKey) {
		lists[key] = q.candidates(key)
	}
	q.mu.Unlock()
	for _, list := range lists {
		slices.SortFunc(list, firstToTry)
	}
	for _, key := range keys {
		q.nextBatch(now, key, events[key], merge(lists[key], lists[anyKey]), activate)
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

func merge[R any](a, b []candidate[R]) []candidate[R] {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, firstToTry)
	return all
}

// firstToTry orders by priority, then age.
func firstToTry[R any](x, y candidate[R]) int {
	return cmp.Or(cmp.Compare(corev1helpers.PodPriority(y.pod), corev1helpers.PodPriority(x.pod)),
		x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time), cmp.Compare(x.pod.UID, y.pod.UID))
}

// retried returns the pods that are to be activated by now, whatever happened.
func (q *Queue[R]) retried(now time.Time) map[string]*v1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	for uid, at := range q.unfinished {
		if !now.Before(at) {
			delete(q.unfinished, uid)
			q.pods[uid].givenUp++
			q.retryAt(uid, now)
		}
	}
	pods := map[string]*v1.Pod{}
	for uid, r := range q.retries {
		if now.Before(r.at) {
			continue
		}
		pods[string(uid)] = q.pods[uid].pod
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
	var batch []*v1.Pod
	left := false
	for _, c := range candidates {
		if !e.isNews(c.lastTry) || activate[string(c.pod.UID)] != nil || !possible(c.pod, c.request) && !(preemptible && preempts(c.pod, least)) {
			continue
		}
		if left = len(batch) == e.batch; left {
			break
		}
		if q.activatedBefore(now, c.pod) {
			continue
		}
		batch = append(batch, c.pod)
		activate[string(c.pod.UID)] = c.pod
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pod := range batch {
		if w := q.pods[pod.UID]; w != nil {
			w.from = 0 // the event may be of what was looked at before
			q.retries[pod.UID] = retry{at: now.Add(RetryInterval), delay: 2 * RetryInterval, activated: now}
		}
	}
	if !left && q.events[key].changes == e.changes {
		delete(q.events, key)
		return
	}
	q.events[key].batch, q.events[key].nextBatch = 2*e.batch, now.Add(BatchInterval)
}

// activatedBefore reports whether the pod was activated a moment ago and has not been tried
// yet. It is activated again soon.
func (q *Queue[R]) activatedBefore(now time.Time, pod *v1.Pod) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, known := q.retries[pod.UID]
	soon := r.activated.Add(RetryInterval)
	if !known || !now.Before(soon) {
		return false
	}
	if soon.Before(r.at) {
		r.at, r.delay = soon, RetryInterval
		q.retries[pod.UID] = r
	}
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
	for _, at := range q.unfinished {
		earliest(at)
	}
	for _, e := range q.events {
		earliest(e.nextBatch)
	}
	q.next = now.Add(maxRetryInterval)
	if more {
		q.next = now.Add(wait)
	}
	return wait, more
}

// preempts reports whether the pod may preempt others if that takes at least the priority.
func preempts(pod *v1.Pod, least int32) bool {
	never := pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
	return !never && corev1helpers.PodPriority(pod) >= least
}
