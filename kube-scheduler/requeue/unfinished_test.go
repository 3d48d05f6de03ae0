package requeue

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A try that ended before the plugin was asked all is made again, after ever longer times.
func TestTriesThatAreNotFinished(t *testing.T) {
	r := newRig()
	r.Finishes = true
	p := pod("p01")
	r.Add(p, 0, "cam")
	try := func() { t.Helper(); r.Try(p.UID) }
	want := func(within time.Duration, activated ...string) {
		t.Helper()
		if got := r.after(within); !slices.Equal(got, activated) {
			t.Errorf("within %s activated %v, want %v", within, got, activated)
		}
	}
	const soon = time.Millisecond
	try()
	want(RetryInterval - soon)
	want(2*soon, "p01")
	try()
	want(2*RetryInterval - soon)
	want(2*soon, "p01")

	for name, finish := range map[string]func(types.UID){"finished": r.Finished, "reserved": r.Reserved} {
		try()
		finish(p.UID)
		if want(time.Hour); t.Failed() {
			t.Fatal(name)
		}
	}
	try() // the times begin anew
	want(RetryInterval+soon, "p01")
	try()
	r.Delete(p.UID)
	want(time.Hour)
}

// A try that did not look at all is made again, after ever longer times, and goes on where it
// ended, but for an event.
func TestUnfinished(t *testing.T) {
	r := newRig()
	r.Finishes = true
	p := pod("p01")
	r.Add(p, 0, "cam")
	try := func(want int) {
		t.Helper()
		r.Try(p.UID)
		if from := r.Asked(p.UID); from != want {
			t.Errorf("the try goes on from %d, want %d", from, want)
		}
	}
	want := func(within time.Duration, activated ...string) {
		t.Helper()
		if got := r.after(within); !slices.Equal(got, activated) {
			t.Errorf("within %s activated %v, want %v", within, got, activated)
		}
	}
	const soon = time.Millisecond
	try(0)
	want(time.Hour) // it takes its time
	for i, after := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		r.Unfinished(p.UID, i+1)
		want(after*time.Second - soon)
		want(2*soon, "p01")
		try(i + 1)
	}
	r.Unfinished(p.UID, 12)
	r.free("cam")
	want(soon, "p01")
	try(0)
	r.Unfinished(p.UID, 5)
	r.Try(p.UID)
	r.Finished(p.UID)
	want(time.Hour)
	try(0)
	r.Unfinished(p.UID, 1)
	want(time.Second+soon, "p01") // the times begin anew
}

// Run looks in time at a try that is not finished, though it had nothing to do when it began.
func TestRunSeesTriesThatAreNotFinished(t *testing.T) {
	r := newRig()
	r.Finishes = true
	p := pod("p01")
	r.Add(p, 0, "cam")
	r.after(time.Second)
	select {
	case <-r.signal:
	default:
	}
	r.Try(p.UID)
	select {
	case <-r.signal:
	default:
		t.Error("Run sleeps on")
	}
}
