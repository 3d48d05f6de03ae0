package requeue

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/types/slot"
)

// task is what a Step is to do at a time: to activate a pod, or a key's next batch.
type task struct {
	at     time.Time
	number uint64 // tells it from others of that time
	// do adds to the pods that are to be activated, and returns how many it has looked at.
	do func(now time.Time, activate map[string]*v1.Pod) int
}

func sooner(x, y *task) bool { return x.at.Before(y.at) || x.at.Equal(y.at) && x.number < y.number }

// set has the task done at the time. The caller holds mu.
func (q *Queue[R]) set(t *task, at time.Time) {
	q.agenda.Delete(t)
	q.now++
	t.at, t.number = at, q.now
	q.agenda.ReplaceOrInsert(t)
}

// Run activates pods until ctx is done.
func (q *Queue[R]) Run(ctx context.Context) {
	for {
		wait, more := q.Step()
		if !more || wait > RetryInterval {
			wait = RetryInterval // a retry that is set meanwhile is not due before
		}
		select {
		case <-ctx.Done():
			return
		case <-q.signal:
		case <-q.Clock.After(wait):
		}
	}
}

// Step activates pods whose time has come, a bounded number of them. It returns how long to wait
// before the next Step if nothing happens; more is false if nothing is to be done until something
// happens. It is for Run, and for tests; one goroutine may call it at a time.
func (q *Queue[R]) Step() (wait time.Duration, more bool) {
	now, activate := q.Clock.Now(), map[string]*v1.Pod{}
	q.mu.Lock()
	t, more := q.agenda.Min()
	for looked := 0; more && !now.Before(t.at) && looked < maxPerStep; t, more = q.agenda.Min() {
		looked += t.do(now, activate)
	}
	if more {
		wait = max(0, t.at.Sub(now))
	}
	q.mu.Unlock()
	if len(activate) > 0 {
		q.Activator.Activate(q.Logger, activate)
	}
	return wait, more
}

// candidate is a pod in line as a Step finds it.
type candidate[R any] struct {
	*waiting[R]
	request R
}

// nextBatch activates the key's next batch. When all of it have been tried or had the time to be,
// the one after follows, at once if nobody was activated; none does when nobody is left. The caller
// holds mu, which is free while the plugin is asked.
func (q *Queue[R]) nextBatch(e *keyEvents[R], now time.Time, activate map[string]*v1.Pod) (looked int) {
	seen, slots := *e, e.preemptible.UnsortedList()
	var found []candidate[R]
	for ; looked < maxPerStep && e.left.Len() > 0; looked++ {
		if w, _ := e.left.DeleteMin(); w.state.inLine() && e.concerns(w) {
			found = append(found, candidate[R]{w, w.request})
		}
	}
	q.mu.Unlock()
	chosen, rest, over := q.choose(seen, slots, found)
	q.mu.Lock()
	if seen.changes != e.changes {
		rest, over = found, false
	}
	for _, c := range rest {
		e.left.ReplaceOrInsert(c.waiting)
	}
	e.batch = &batch[R]{of: e}
	for _, c := range chosen {
		if c.state.inLine() && e.concerns(c.waiting) { // neither gone nor tried meanwhile
			q.activate(c.waiting, now, activate)
			c.batch = e.batch
			e.batch.untried++
		}
	}
	switch {
	case over || e.left.Len() == 0:
		q.agenda.Delete(&e.next)
		delete(q.events, e.key)
		e.batch = nil
	case e.batch.untried == 0:
		q.set(&e.next, now)
	default:
		e.size = min(2*e.size, maxPerStep)
		q.set(&e.next, now.Add(RetryInterval))
	}
	return looked + 1
}

// choose asks the plugin which pods of the line are the next batch. It returns those after it, too, and
// whether nobody after the line is helped either.
func (q *Queue[R]) choose(e keyEvents[R], slots []slot.Name, line []candidate[R]) (
	next, rest []candidate[R], over bool) {
	var possible func(R) bool // nil: for nobody
	if e.free {
		possible = q.Possible(e.key)
	}
	least, preemptible := int32(0), false
	if len(slots) > 0 {
		least, preemptible = q.MinPreemptorPriority(slots)
	}
	if possible == nil && !preemptible {
		return nil, nil, true
	}
	for i, c := range line {
		switch {
		case possible == nil && c.priority < least:
			return next, nil, true
		case (possible == nil || !possible(c.request)) && (!preemptible || c.never || c.priority < least):
		case len(next) == e.size:
			return next, line[i:], false
		default:
			next = append(next, c)
		}
	}
	return next, nil, false
}
