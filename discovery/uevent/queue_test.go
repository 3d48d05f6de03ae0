package uevent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQueue tells a queue of events at times, and asks at each of other times what is to
// be read.
func TestQueue(t *testing.T) {
	type step struct {
		at    int // milliseconds
		put   *Event
		below []string
		scan  bool
		// without put and scan, take is called:
		want work
		next int // 0: none
	}
	kernel := func(action, path string) *Event { return &Event{Action: action, Path: path} }
	udevd := func(action, path string) *Event { return &Event{Action: action, Path: path, Udevd: true} }
	paths := func(paths ...string) work { return work{paths: paths} }
	for name, tc := range map[string]struct {
		udevdRuns bool
		steps     []step
	}{
		"nothing": {steps: []step{{at: 5}}},
		"an event waits for others, and is looked at twice": {steps: []step{
			{at: 0, put: kernel("add", "/devices/a")},
			{at: 10, put: kernel("add", "/devices/b")},
			{at: 15, next: 20},
			{at: 20, want: paths("/devices/a"), next: 30},
			{at: 40, want: paths("/devices/b"), next: 2000},
			{at: 2000, want: paths("/devices/a"), next: 2010},
			{at: 2010, want: paths("/devices/b")},
		}},
		"many events of a device are one": {steps: []step{
			{at: 0, put: kernel("add", "/devices/a")},
			{at: 5, put: kernel("change", "/devices/a")},
			{at: 19, put: kernel("bind", "/devices/a")},
			{at: 20, want: paths("/devices/a"), next: 2019},
			{at: 2019, want: paths("/devices/a")},
		}},
		"the files of what goes may be there a little longer": {steps: []step{
			{at: 0, put: kernel("add", "/devices/a")},
			{at: 10, put: kernel("remove", "/devices/a")},
			{at: 20, want: paths("/devices/a"), next: 210},
			{at: 210, want: paths("/devices/a")},
		}},
		"no devices": {steps: []step{
			{at: 0, put: kernel("add", "/module/loop")},
			{at: 0, put: kernel("add", "/bus/usb/drivers/x")},
			{at: 3000},
		}},
		"with udevd, its event counts": {udevdRuns: true, steps: []step{
			{at: 0, put: kernel("add", "/devices/a")},
			{at: 100, next: 500},
			{at: 110, put: udevd("add", "/devices/a")},
			{at: 130, want: paths("/devices/a"), next: 2000},
			{at: 2000, want: paths("/devices/a")},
		}},
		"udevd in another network namespace": {udevdRuns: true, steps: []step{
			{at: 0, put: kernel("add", "/devices/a")},
			{at: 500, want: paths("/devices/a"), next: 2000},
		}},
		"udevd is not waited for when a device goes": {udevdRuns: true, steps: []step{
			{at: 0, put: kernel("remove", "/devices/a")},
			{at: 20, want: paths("/devices/a"), next: 200},
		}},
		"a renamed device takes those below along": {steps: []step{
			{at: 0, put: &Event{Action: "move", Path: "/devices/new", Properties: map[string]string{"DEVPATH_OLD": "/devices/old"}}, below: []string{"/devices/new/tap"}},
			{at: 20, want: paths("/devices/new", "/devices/new/tap", "/devices/old"), next: 2000},
		}},
		"a renamed device takes along what is not read yet": {steps: []step{
			{at: 0, put: kernel("add", "/devices/old/tap")},
			{at: 1, put: &Event{Action: "move", Path: "/devices/new",
				Properties: map[string]string{"DEVPATH_OLD": "/devices/old"}}},
			{at: 25, want: paths("/devices/new", "/devices/new/tap", "/devices/old", "/devices/old/tap"), next: 2000},
			{at: 2000, want: paths("/devices/new/tap", "/devices/old/tap"), next: 2001},
		}},
		"a scan reads everything, and its second look stays": {steps: []step{
			{at: 0, put: kernel("add", "/devices/a")},
			{at: 1, scan: true},
			{at: 2, want: work{all: true}},
			{at: 20, next: 2000},
		}},
		"scans are a second apart": {steps: []step{
			{at: 0, scan: true},
			{at: 0, want: work{all: true}},
			{at: 10, scan: true},
			{at: 11, put: kernel("add", "/devices/a")},
			{at: 12, next: 31},
			{at: 31, want: paths("/devices/a"), next: 1000},
			{at: 1000, want: work{all: true}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			zero := time.Unix(1e9, 0)
			at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
			q := newQueue()
			var scanned time.Time
			for i, s := range tc.steps {
				switch {
				case s.scan:
					q.scan()
				case s.put != nil:
					q.put(s.put, s.below, at(s.at), func() bool { return tc.udevdRuns })
				default:
					got, next := q.take(at(s.at), scanned)
					if diff := cmp.Diff(s.want, got, cmp.AllowUnexported(work{})); diff != "" {
						t.Errorf("step %d, %d ms: take() (-want +got):\n%s", i, s.at, diff)
					}
					if want := at(s.next); s.next == 0 && !next.IsZero() || s.next != 0 && !next.Equal(want) {
						t.Errorf("step %d, %d ms: next at %d ms, want %d", i, s.at, next.Sub(zero).Milliseconds(), s.next)
					}
					if got.all {
						scanned = at(s.at)
					}
				}
			}
		})
	}
}
