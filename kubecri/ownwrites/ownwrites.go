// Package ownwrites remembers the objects that this process has written until its cache shows them:
// what is decided next is based on them, also when watches are slow.
//
// It is client-go's cache.MutationCache with deletions, for which that has no place.
package ownwrites

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
)

// ShownWithin is how soon the cache shows what was written. After that the cache is right: what was
// written is gone again, or the API server was restored from a backup, whose versions are lower.
const ShownWithin = time.Minute

// Writes are the objects of one kind that the cache does not show yet, by name. Safe for concurrent
// use.
type Writes[T metav1.Object] struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	latest map[string]written[T]
	// removed are the UIDs of objects that were deleted, and when.
	removed map[types.UID]time.Time
}

type written[T any] struct {
	object T
	at     time.Time
}

// New returns an empty account.
func New[T metav1.Object](clock clock.PassiveClock) *Writes[T] {
	return &Writes[T]{clock: clock, latest: map[string]written[T]{}, removed: map[types.UID]time.Time{}}
}

// Wrote remembers an object as the API server has returned it, unless it is known to be gone: an answer
// may be late. It is not to be changed afterwards.
func (w *Writes[T]) Wrote(object T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
	if _, gone := w.removed[object.GetUID()]; gone {
		return
	}
	w.latest[object.GetName()] = written[T]{object, w.clock.Now()}
}

// Deleted remembers that this process has deleted an object.
func (w *Writes[T]) Deleted(name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.latest, name)
	w.removed[uid] = w.clock.Now()
}

// Gone is to be called for each object that the cache ceases to show.
func (w *Writes[T]) Gone(name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if latest, ok := w.latest[name]; ok && latest.object.GetUID() == uid {
		delete(w.latest, name)
	}
	w.removed[uid] = w.clock.Now()
}

// Get returns the object of the name as it is known to be, by what the cache shows of it; false when
// there is none.
func (w *Writes[T]) Get(name string, cached T, shown bool) (object T, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
	return w.get(name, cached, shown)
}

func (w *Writes[T]) get(name string, cached T, shown bool) (object T, ok bool) {
	if latest, ok := w.latest[name]; ok && (!shown || w.hides(cached) || older(cached, latest.object)) {
		return latest.object, true
	}
	delete(w.latest, name) // the cache shows it
	if !shown || w.hides(cached) {
		return object, false
	}
	return cached, true
}

// hides reports whether the object was deleted. A cache that shows its deletion is right: a finalizer
// keeps it.
func (w *Writes[T]) hides(object T) bool {
	_, removed := w.removed[object.GetUID()]
	return removed && object.GetDeletionTimestamp() == nil
}

// Merge returns the objects that there are, by those that the cache shows.
func (w *Writes[T]) Merge(cached []T) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
	var all []T
	for _, c := range cached {
		if object, ok := w.get(c.GetName(), c, true); ok {
			if _, unshown := w.latest[c.GetName()]; !unshown { // those are below
				all = append(all, object)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.latest)) {
		all = append(all, w.latest[name].object)
	}
	return all
}

// older reports whether an object is from before another. Objects of which that is not known are not.
func older[T metav1.Object](a, b T) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// forget drops what the cache must show by now.
func (w *Writes[T]) forget() {
	now := w.clock.Now()
	maps.DeleteFunc(w.latest, func(_ string, l written[T]) bool { return now.Sub(l.at) >= ShownWithin })
	maps.DeleteFunc(w.removed, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= ShownWithin })
}

// Forgets returns when the next object is forgotten, and false while nothing is remembered. Then the
// objects are to be looked at again: the cache may never have shown one that was deleted at once.
func (w *Writes[T]) Forgets() (after time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
	now := w.clock.Now()
	next := func(at time.Time) {
		if left := ShownWithin - now.Sub(at); !ok || left < after {
			after, ok = left, true
		}
	}
	for _, l := range w.latest {
		next(l.at)
	}
	for _, at := range w.removed {
		next(at)
	}
	return after, ok
}
