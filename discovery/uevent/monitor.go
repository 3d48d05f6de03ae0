package uevent

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

const (
	// DefaultScanInterval is how often all devices are read again: attributes change
	// without an event.
	DefaultScanInterval = time.Minute

	// retryInterval is how often all devices are read while uevents cannot be heard, as
	// in a network namespace of another user namespace.
	retryInterval = 10 * time.Second
)

// Monitor follows the devices of this machine for any number of watchers, with one
// socket and one set of devices for all of them. It works while somebody watches. Its
// zero value is ready for use; its fields must not change after the first Watch.
type Monitor struct {
	// Tree is where devices are read.
	Tree sysfs.Tree

	// ScanInterval is how often all devices are read again in case that something
	// changed without an event; DefaultScanInterval when 0.
	ScanInterval time.Duration

	// Events is Watch unless a test sets it.
	Events func(ctx context.Context, changed func(*Event)) error

	mu  sync.Mutex
	run *run // nil while nobody watches
}

// Change is what a watcher has to look at.
type Change struct {
	// All is true when Devices are all devices there are: whatever else was known is
	// gone. It is true for the first Change.
	All bool

	// Devices are those that are new or were read again, and all below them: their
	// parents' attributes may have changed. Sorted by path.
	Devices []*sysfs.Device

	// Gone are the paths of devices that are not there any more, sorted.
	Gone []string
}

// Watch calls update with all devices, and with what changed from then on, until ctx
// ends; never concurrently. Changes that come while update runs are put together. It
// returns ctx's error, or why devices cannot be read at all.
func (m *Monitor) Watch(ctx context.Context, update func(Change)) error {
	w := newWatcher()
	m.join(ctx, w)
	defer m.leave(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		change, err := w.take()
		if err != nil {
			return err
		}
		if ctx.Err() == nil {
			update(change)
		}
	}
}

// Find watches until ctx ends, and sends what find makes of changes, but for those of
// which it returns false. Reading an attribute can take seconds while a driver is busy
// with its device: that find runs keeps nobody waiting who awaits ctx. ended has one
// element, Watch's error, or that find panicked.
func Find[T any](ctx context.Context, m *Monitor, find func(Change) (T, bool)) (found <-chan T, ended <-chan error) {
	results, end := make(chan T), make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil { // It would end the whole process here.
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			end <- err
		}()
		err = m.Watch(ctx, func(change Change) {
			result, ok := find(change)
			if !ok {
				return
			}
			select {
			case results <- result:
			case <-ctx.Done():
			}
		})
	}()
	return results, end
}

// join adds a watcher, and starts to follow devices for the first one.
func (m *Monitor) join(ctx context.Context, w *watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil {
		// It must outlive this watcher's context, if another one joins.
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		m.run = &run{
			tree:     m.Tree,
			interval: cmp.Or(m.ScanInterval, DefaultScanInterval),
			events:   m.Events,
			cancel:   cancel,
			watchers: map[*watcher]bool{},
			queue:    newQueue(),
		}
		if m.run.events == nil {
			m.run.events = Watch
		}
		go m.run.listen(running)
		go m.run.follow(running)
	}
	m.run.add(w)
}

func (m *Monitor) leave(w *watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run != nil && m.run.remove(w) == 0 {
		m.run.cancel()
		m.run = nil
	}
}

// run follows the devices from the first watcher's coming to the last one's leaving.
type run struct {
	tree     sysfs.Tree
	interval time.Duration
	events   func(ctx context.Context, changed func(*Event)) error
	cancel   context.CancelFunc
	queue    *queue

	mu       sync.Mutex
	watchers map[*watcher]bool
	snapshot *sysfs.Snapshot // nil before the first scan
}

func (r *run) add(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = true
	if r.snapshot != nil {
		w.put(Change{All: true, Devices: r.snapshot.Devices()})
	} else {
		r.queue.scan()
	}
}

// remove returns how many watchers are left.
func (r *run) remove(w *watcher) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, w)
	return len(r.watchers)
}

// listen puts events into the queue. Where it cannot listen, it has all devices read
// from time to time.
func (r *run) listen(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for told := false; ; told = true {
		err := r.events(ctx, r.hear)
		if ctx.Err() != nil {
			return
		}
		if !told {
			logger.Error(err, "Cannot hear of devices that come and go: looking from time to time instead", "interval", retryInterval)
		}
		r.queue.scan()
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
	}
}

// hear puts one event into the queue.
func (r *run) hear(event *Event) {
	if event == nil {
		r.queue.scan()
		return
	}
	var below []string
	if old := event.Properties["DEVPATH_OLD"]; old != "" {
		// The kernel sends one event for a renamed device and none for those below it.
		r.mu.Lock()
		snapshot := r.snapshot
		r.mu.Unlock()
		if snapshot != nil {
			for _, path := range snapshot.Below(old) {
				below = append(below, event.Path+strings.TrimPrefix(path, old))
			}
		}
	}
	r.queue.put(event, below, time.Now(), r.tree.UdevdRuns)
}

// follow reads what the queue says at the time that it says, and everything at each
// interval.
func (r *run) follow(ctx context.Context) {
	var scanned time.Time
	for {
		work, next := r.queue.take(time.Now(), scanned)
		if !scanned.IsZero() && time.Since(scanned) >= r.interval {
			work.all = true
		}
		switch {
		case ctx.Err() != nil:
			return
		case work.all:
			r.scan()
			scanned = time.Now()
			continue
		case len(work.paths) > 0:
			r.reload(work.paths)
			continue
		}
		if !scanned.IsZero() {
			if periodic := scanned.Add(r.interval); next.IsZero() || periodic.Before(next) {
				next = periodic
			}
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = max(time.Until(next), 0)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.queue.wake:
		case <-time.After(wait):
		}
	}
}

// scan reads all devices.
func (r *run) scan() {
	snapshot, err := r.tree.Snapshot()
	if before := r.snapshot; err == nil && before != nil { // which nobody else replaces
		snapshot.Keep(before)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = snapshot
	for w := range r.watchers {
		if err != nil {
			w.fail(err)
		} else {
			w.put(Change{All: true, Devices: snapshot.Devices()})
		}
	}
}

// reload reads some devices again.
func (r *run) reload(paths []string) {
	r.mu.Lock()
	snapshot := r.snapshot
	r.mu.Unlock()
	if snapshot == nil {
		return // A scan failed; the next one reads them all.
	}
	// In order: a later one may say otherwise of the same device.
	var changes []Change
	for _, path := range paths {
		touched, gone := snapshot.Reload(path)
		if len(touched)+len(gone) > 0 {
			changes = append(changes, Change{Devices: touched, Gone: gone})
		}
	}
	if len(changes) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watchers {
		w.put(changes...)
	}
}
