package uevent

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// batchWindow is how long an event waits for others, so that a device of several
	// parts becomes one change.
	batchWindow = 20 * time.Millisecond

	// udevdPatience is how long the kernel's event waits for udevd's of the same device,
	// where udevd runs. udevd's does not reach other network namespaces.
	udevdPatience = 500 * time.Millisecond

	// secondLook is when a device is read once more after the kernel's event: drivers add
	// attributes, and udevd properties, some time after it.
	secondLook = 2 * time.Second

	// goneLook is the same after the event of a device that goes: the kernel sends it
	// just before the device's files go.
	goneLook = 200 * time.Millisecond

	// minScanGap bounds how often all devices are read when events are lost.
	minScanGap = time.Second
)

// queue is what to read, and when. Each path has one first and one second time, however
// many events it has.
type queue struct {
	wake chan struct{} // has one element after a put

	mu     sync.Mutex
	all    bool
	first  map[string]time.Time
	second map[string]time.Time
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), first: map[string]time.Time{}, second: map[string]time.Time{}}
}

// scan asks for all devices to be read.
func (q *queue) scan() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = true
	signal(q.wake)
}

// put adds an event. Devices that a renamed one takes along are in below: their paths
// after the renaming.
func (q *queue) put(event *Event, below []string, now time.Time, udevdRuns func() bool) {
	if !strings.HasPrefix(event.Path, "/devices/") {
		return // A driver or a module: no device.
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	first := now.Add(batchWindow)
	switch {
	case event.Udevd:
	case event.Action == "remove":
		q.second[event.Path] = now.Add(goneLook)
	default:
		if udevdRuns() {
			first = now.Add(udevdPatience)
		}
		q.second[event.Path] = now.Add(secondLook)
	}
	q.sooner(event.Path, first)
	if old := event.Properties["DEVPATH_OLD"]; old != "" {
		q.sooner(old, now.Add(batchWindow))
		for _, times := range []map[string]time.Time{q.first, q.second} {
			for path, at := range maps.Clone(times) { // what was to be read below it is elsewhere now
				if rest, ok := strings.CutPrefix(path, old+"/"); ok {
					times[event.Path+"/"+rest] = at
				}
			}
		}
	}
	for _, path := range below {
		q.sooner(path, first)
	}
	signal(q.wake)
}

// sooner sets the first time of a path, unless it has an earlier one.
func (q *queue) sooner(path string, at time.Time) {
	if was, ok := q.first[path]; !ok || at.Before(was) {
		q.first[path] = at
	}
}

// work is what to read now.
type work struct {
	all   bool
	paths []string // sorted
}

// take removes and returns what is due, and says when it wants to be called again; zero
// if only after a put. scanned is when all devices were read last, zero if never.
func (q *queue) take(now, scanned time.Time) (due work, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all {
		if scanned.IsZero() || now.Sub(scanned) >= minScanGap {
			// Reading all includes what is due; a second look stays useful.
			q.all = false
			clear(q.first)
			return work{all: true}, time.Time{}
		}
		next = scanned.Add(minScanGap)
	}
	for _, times := range []map[string]time.Time{q.first, q.second} {
		for path, at := range times {
			if !at.After(now) {
				delete(times, path)
				due.paths = append(due.paths, path)
			} else if next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	slices.Sort(due.paths)
	due.paths = slices.Compact(due.paths)
	return due, next
}
