package requeue

import (
	"time"

	"github.com/google/btree"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waiting is a pod that waits.
type waiting[R any] struct {
	pod      *v1.Pod
	request  R
	keys     []string
	priority int32
	never    bool   // it preempts nobody
	giver    string // see giverOf

	state   state
	retry   task          // activates it, in states that have one
	delay   time.Duration // from the next activation to the one after, unless it is tried
	lastTry uint64        // its number
	// reserved is whether the last try has reserved something, or preempted pods for it.
	reserved bool
	// finished is whether its last try had an answer.
	finished bool
	givenUp  int // tries that were not finished, in a row
	from     int // where the next try goes on, see Unfinished
	batch    *batch[R]
}

// state is of a waiting pod.
type state int

const (
	untried  state = iota // the framework has yet to try it
	rejected              // it waits for an event
	// In the states from here it is activated at a time, unless it is tried before.
	trying    // a try goes on: unless that has an answer before
	retrying  // whatever happens
	activated // again: it was activated, and not tried since
)

// inLine reports whether events are news to the pod: it was tried before, and not activated since.
func (s state) inLine() bool { return s == rejected || s == trying || s == retrying }

// become changes the pod's state. at is the time of its retry, in states that have one. The caller
// holds mu.
func (q *Queue[R]) become(w *waiting[R], s state, at time.Time) {
	switch {
	case s.inLine() && !w.state.inLine():
		for _, key := range w.keys {
			if q.lines[key] == nil {
				q.lines[key] = btree.NewWithFreeListG(degree, firstToTry[R], q.spare)
			}
			q.lines[key].ReplaceOrInsert(w)
		}
	case !s.inLine() && w.state.inLine():
		for _, key := range w.keys {
			if q.lines[key].Delete(w); q.lines[key].Len() == 0 {
				delete(q.lines, key)
			}
		}
	}
	if w.state = s; s >= trying {
		q.set(&w.retry, at)
	} else {
		q.agenda.Delete(&w.retry)
	}
}

// activate has the pod activated, and again later, unless it is tried. The framework tries a group whenever one of
// it is activated, and again by itself, and may not come to this pod. The caller holds mu.
func (q *Queue[R]) activate(w *waiting[R], now time.Time, pods map[string]*v1.Pod) {
	pods[string(w.pod.UID)] = w.pod
	if w.pod.Spec.SchedulingGroup != nil {
		q.become(w, rejected, time.Time{})
		return
	}
	if w.state != activated {
		w.delay = RetryInterval
	}
	q.become(w, activated, now.Add(w.delay))
	w.delay = min(2*w.delay, maxRetryInterval)
}

// leaveBatch records that the pod was tried, or waits no longer. The last one of a batch makes the
// next batch due. The caller holds mu.
func (q *Queue[R]) leaveBatch(w *waiting[R]) {
	if b := w.batch; b != nil {
		w.batch = nil
		if b.untried--; b.untried == 0 && b == b.of.batch {
			q.set(&b.of.next, q.Clock.Now())
			q.signal.Send()
		}
	}
}

// Try records that a try of the pod begins. To be called before the plugin looks at what
// is free: events from now on are news to the pod.
func (q *Queue[R]) Try(uid types.UID) {
	q.with(uid, func(w *waiting[R]) {
		if w.finished {
			w.givenUp, w.from = 0, 0
		}
		q.now++
		w.lastTry, w.finished, w.reserved = q.now, false, false
		if q.Finishes && w.pod.Spec.SchedulingGroup == nil { // a group's pods are not asked for one by one
			q.become(w, trying, q.Clock.Now().Add(w.backoff(maxRetryInterval)))
		} else {
			q.become(w, rejected, time.Time{})
		}
		q.leaveBatch(w)
	})
}

// backoff is how long after a try that was not finished the next one is made.
func (w *waiting[R]) backoff(most time.Duration) time.Duration {
	return min(RetryInterval<<min(w.givenUp, 10), most)
}

// Asked records that the plugin was asked all that it is asked for a pod without a node: it has
// an answer, for which it may take its time, or says that the try is Unfinished. Asked returns
// what Unfinished said at the last try; 0 when that was finished.
func (q *Queue[R]) Asked(uid types.UID) (from int) {
	q.with(uid, func(w *waiting[R]) {
		q.finish(w)
		from = w.from
	})
	return from
}

// finish records that the try has an answer. The caller holds mu.
func (q *Queue[R]) finish(w *waiting[R]) {
	// A try that took so long that it was given up does not end the backoff: the next one may too.
	w.finished = w.state != activated
	if w.state == trying {
		q.become(w, rejected, time.Time{})
	}
}

// Unfinished is RetryLater for a try that ended before all was looked at. The next one goes on from there.
func (q *Queue[R]) Unfinished(uid types.UID, from int) {
	q.with(uid, func(w *waiting[R]) { w.from = from })
	q.RetryLater(uid)
}

// Reserved records that the pod's try reserved something, or preempted pods for it. If it
// gives that back, the framework tries it again, after a while; others must not have it
// tried by giving back what they reserved: two pods that fail after Reserve would activate
// each other for ever.
func (q *Queue[R]) Reserved(uid types.UID) {
	q.with(uid, func(w *waiting[R]) {
		w.reserved = true
		q.finish(w)
	})
}

// RetryNow has the pod tried at once.
func (q *Queue[R]) RetryNow(uid types.UID) {
	q.with(uid, func(w *waiting[R]) { q.retryAfter(w, 0) })
}

// RetryWaiting has the pods tried at once that were tried before, that wait for one of the keys, and
// that selects chooses; nil chooses all. It returns how many those are. Both functions are called
// under the Queue's lock.
func (q *Queue[R]) RetryWaiting(keys func(string) bool, selects func(*v1.Pod, R) bool) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, line := range q.lines {
		if keys == nil || keys(key) {
			line.Ascend(func(w *waiting[R]) bool {
				if selects == nil || selects(w.pod, w.request) {
					q.retryAfter(w, 0)
					n++
				}
				return true
			})
		}
	}
	return n
}

// RetryLater has the pod tried in a while, past the framework's backoff: no event may follow
// that would have it tried, and at once it would be tried over and over for as long as
// nothing changes. That is after RetryInterval, and after twice the time whenever the next try ends so, too,
// up to maxUnfinishedInterval.
func (q *Queue[R]) RetryLater(uid types.UID) {
	q.with(uid, func(w *waiting[R]) {
		if w.state != untried {
			w.finished = false
			q.retryAfter(w, w.backoff(maxUnfinishedInterval))
			w.givenUp++
		}
	})
}

// retryAfter has a pod that was tried activated after a while, if it is not to be before. The caller
// holds mu.
func (q *Queue[R]) retryAfter(w *waiting[R], while time.Duration) {
	at, s := q.Clock.Now().Add(while), retrying
	switch w.state {
	case untried:
		return
	case activated:
		s = activated
		fallthrough
	case retrying:
		if !at.Before(w.retry.at) {
			return
		}
	}
	w.delay = RetryInterval
	q.become(w, s, at)
	if while < RetryInterval { // else Run finds it by itself
		q.signal.Send()
	}
}
