package uevent

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

// watcher holds what one watcher has not taken yet: of each path the latest.
type watcher struct {
	wake chan struct{} // has one element while there is something to take

	mu      sync.Mutex
	all     bool
	devices map[string]*sysfs.Device
	gone    map[string]bool
	err     error
}

func newWatcher() *watcher {
	return &watcher{wake: make(chan struct{}, 1), devices: map[string]*sysfs.Device{}, gone: map[string]bool{}}
}

// put adds changes, the oldest first, to those that wait. Of one change, what is gone is
// older than what was read.
func (w *watcher) put(changes ...Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, change := range changes {
		if change.All {
			w.all = true
			clear(w.devices)
			clear(w.gone)
		}
		for _, path := range change.Gone {
			delete(w.devices, path)
			w.gone[path] = true
		}
		for _, device := range change.Devices {
			delete(w.gone, device.Path())
			w.devices[device.Path()] = device
		}
	}
	signal(w.wake)
}

// fail makes the watcher end.
func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	signal(w.wake)
}

// signal has the channel, which has room for one element, have one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take returns everything that waits.
func (w *watcher) take() (Change, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change := Change{
		All:     w.all,
		Devices: slices.SortedFunc(maps.Values(w.devices), func(a, b *sysfs.Device) int { return strings.Compare(a.Path(), b.Path()) }),
		Gone:    slices.Sorted(maps.Keys(w.gone)),
	}
	w.all = false
	clear(w.devices)
	clear(w.gone)
	return change, w.err
}
