package requeue

import (
	"cmp"
	"time"

	"github.com/google/btree"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Event is what pods may have now and could not have before.
type Event struct {
	// Freed are the keys of which something is free.
	Freed []string
	// Preemptible are the keys of which something can be had by preemption, and the slots.
	Preemptible map[string][]slot.Name
}

// keyEvents are what happened to a key since the last time that its line was looked at to the end.
type keyEvents[R any] struct {
	key         string
	freed       uint64 // the number of the last event, of those that concern all pods
	gaveBack    uint64 // that of the last one of what a pod gave back
	giver       string // who gave it back; "" when several did
	changes     int    // of what is known of them: a batch that is being made has not seen the last
	free        bool
	preemptible sets.Set[slot.Name] // slots that some pods may have by preemption

	left  *btree.BTreeG[*waiting[R]] // who was in line at the last event and has not been looked at since
	size  int                        // of the next batch
	batch *batch[R]                  // the last one
	next  task                       // makes the next one
}

// batch counts the pods that were activated together and have not been tried.
type batch[R any] struct {
	of      *keyEvents[R]
	untried int
}

// Record has the pods tried that an event may help.
func (q *Queue[R]) Record(e Event) { q.GaveBack("", e) }

// GaveBack is Record for what a pod that waits gave back that it had reserved in its last try. It is no news to the
// pod itself, to others of its gang, which is reserved and given back as one, nor to pods
// that were not rejected meanwhile.
func (q *Queue[R]) GaveBack(uid types.UID, e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	giver := ""
	if w := q.pods[uid]; w != nil && w.reserved {
		giver = w.giver
	}
	for _, key := range e.Freed {
		if on := q.on(key, giver); on != nil {
			on.free = true
		}
	}
	for key, slots := range e.Preemptible {
		if on := q.on(key, giver); on != nil {
			on.preemptible.Insert(slots...)
		}
	}
}

// on returns the state of the key, with an event on it now; nil if it can help nobody. The
// caller holds mu.
func (q *Queue[R]) on(key, giver string) *keyEvents[R] {
	line := cmp.Or(q.lines[anyKey], q.lines[key])
	if line == nil {
		return nil
	}
	e := q.events[key]
	if e == nil {
		e = &keyEvents[R]{key: key, size: cmp.Or(q.FirstBatch, DefaultFirstBatch), preemptible: sets.Set[slot.Name]{}}
		e.next.do = func(now time.Time, activate map[string]*v1.Pod) int { return q.nextBatch(e, now, activate) }
		q.events[key] = e
		q.set(&e.next, q.Clock.Now())
	}
	q.now++
	switch {
	case giver == "":
		e.freed = q.now
	case e.gaveBack > 0 && e.giver != giver:
		e.gaveBack, e.giver = q.now, ""
	default:
		e.gaveBack, e.giver = q.now, giver
	}
	e.changes++
	e.left = line.Clone()
	q.signal.Send()
	return e
}

// concerns reports whether an event is news to the pod.
func (e *keyEvents[R]) concerns(w *waiting[R]) bool {
	return w.lastTry < e.freed || w.lastTry < e.gaveBack && !w.reserved && w.giver != e.giver
}

// giverOf names who gives back with the pod: its gang, or the pod alone.
func giverOf(pod *v1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return pod.Namespace + "/" + *group.PodGroupName
	}
	return string(pod.UID)
}

// Taken reports that a pod was given slots of the key that were free. More important pods
// that have not been activated for them yet may preempt that pod.
func (q *Queue[R]) Taken(key string, slots ...slot.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.events[key]; e != nil && e.free {
		e.changes++
		e.preemptible.Insert(slots...)
	}
}
