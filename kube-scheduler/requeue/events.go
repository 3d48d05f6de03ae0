package requeue

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
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

// Record has the pods tried that an event may help.
func (q *Queue[R]) Record(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.record(e)
}

func (q *Queue[R]) record(e Event) {
	for _, key := range e.Freed {
		if on := q.on(key); on != nil {
			on.free = true
		}
	}
	for key, slots := range e.Preemptible {
		if on := q.on(key); on != nil {
			on.preemptible.Insert(slots...)
		}
	}
}

// Taken reports that a pod was given a slot of the key that was free. More important pods
// that have not been activated for it yet may preempt that pod.
func (q *Queue[R]) Taken(key string, s slot.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.events[key]; e != nil && e.free {
		e.changes++
		e.preemptible.Insert(s)
	}
}

// GaveBack is Record for what the pod gave back that it had reserved. It is no news to the
// pod itself, to others of its gang, which is reserved and given back as one, nor to pods
// that were not rejected meanwhile.
func (q *Queue[R]) GaveBack(pod *v1.Pod, e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var exempt []*waiting[R]
	for _, w := range q.pods {
		if (!w.rejected || w.pod.UID == pod.UID || sameGang(w.pod, pod)) && !q.hasNews(w) {
			exempt = append(exempt, w)
		}
	}
	q.record(e)
	for _, w := range exempt {
		w.lastTry = q.now
	}
}

// hasNews reports whether there was an event that the pod was not tried since. The caller
// holds mu.
func (q *Queue[R]) hasNews(w *waiting[R]) bool {
	for key, e := range q.events {
		if w.lastTry < e.number && (w.keys[0] == anyKey || slices.Contains(w.keys, key)) {
			return true
		}
	}
	return false
}

func sameGang(a, b *v1.Pod) bool {
	ga, gb := a.Spec.SchedulingGroup, b.Spec.SchedulingGroup
	return ga != nil && gb != nil && a.Namespace == b.Namespace &&
		ga.PodGroupName != nil && gb.PodGroupName != nil && *ga.PodGroupName == *gb.PodGroupName
}

// on returns the state of the key, with an event on it now; nil if nobody waits for it. The
// caller holds mu.
func (q *Queue[R]) on(key string) *keyEvents {
	if !q.started || len(q.byKey[key]) == 0 && len(q.byKey[anyKey]) == 0 {
		return nil
	}
	q.now++
	e := q.events[key]
	if e == nil {
		e = &keyEvents{batch: cmp.Or(q.FirstBatch, DefaultFirstBatch), preemptible: sets.Set[slot.Name]{}}
		q.events[key] = e
	}
	e.number = q.now
	e.changes++
	q.look()
	return e
}
