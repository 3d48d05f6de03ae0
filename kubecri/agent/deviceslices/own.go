package deviceslices

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// shownWithin is how soon the cache shows what was written. After that the cache is right:
// the API server may have been restored from a backup, whose versions are lower.
const shownWithin = time.Minute

// own remembers what was written until the cache shows it: what is planned and written next
// is based on that, also when watches are slow, and so meets no conflict with itself. Safe
// for concurrent use.
type own struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// latest are slices as they were written last, by name.
	latest map[string]written
	// removed are the UIDs of slices that were deleted, and when.
	removed map[types.UID]time.Time
}

type written struct {
	slice *v1alpha1.DeviceSlice
	at    time.Time
}

func newOwn(clock clock.PassiveClock) *own {
	return &own{clock: clock, latest: map[string]written{}, removed: map[types.UID]time.Time{}}
}

// wrote remembers a slice as the API server has returned it.
func (o *own) wrote(s *v1alpha1.DeviceSlice) {
	s = s.DeepCopy()
	s.ManagedFields = nil // an update without them leaves them as they are
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest[s.Name] = written{s, o.clock.Now()}
}

// deleted remembers that a slice was deleted.
func (o *own) deleted(s *v1alpha1.DeviceSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.latest, s.Name)
	o.removed[s.UID] = o.clock.Now()
}

// gone is told of each slice that the cache ceases to show.
func (o *own) gone(s *v1alpha1.DeviceSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.latest[s.Name].slice != nil && o.latest[s.Name].slice.UID == s.UID {
		delete(o.latest, s.Name)
	}
	delete(o.removed, s.UID)
}

// merge returns the slices that there are, by what the cache has.
func (o *own) merge(cached []*v1alpha1.DeviceSlice) []*v1alpha1.DeviceSlice {
	o.forget()
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*v1alpha1.DeviceSlice
	for _, s := range cached {
		if w, ok := o.latest[s.Name]; ok && older(s, w.slice) {
			continue // below
		}
		delete(o.latest, s.Name) // the cache shows it
		if _, ok := o.removed[s.UID]; !ok {
			all = append(all, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.latest)) {
		all = append(all, o.latest[name].slice)
	}
	return all
}

// older reports whether a slice is from before another. Slices of which that cannot be told
// are not.
func older(a, b *v1alpha1.DeviceSlice) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// forget drops what the cache must show by now.
func (o *own) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.latest, func(_ string, w written) bool { return o.clock.Since(w.at) >= shownWithin })
	maps.DeleteFunc(o.removed, func(_ types.UID, at time.Time) bool { return o.clock.Since(at) >= shownWithin })
}

// forgets returns when the next is forgotten, and false while nothing is remembered. Then the
// slices are to be looked at again: the cache may never have shown one that was deleted at once.
func (o *own) forgets() (after time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.latest {
		if left := shownWithin - o.clock.Since(w.at); !ok || left < after {
			after, ok = left, true
		}
	}
	for _, at := range o.removed {
		if left := shownWithin - o.clock.Since(at); !ok || left < after {
			after, ok = left, true
		}
	}
	return after, ok
}
