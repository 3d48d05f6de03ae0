package requeue

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const soon = time.Millisecond

// finishingRig has a pod of that name, whose tries are to be finished.
func finishingRig(name types.UID) *rig {
	r := newRig()
	r.Finishes = true
	r.await(pod(string(name)), "cam")
	r.Asked(name)
	return r
}

// A try that ended before the plugin was asked all is made again, after ever longer times.
func TestTriesThatAreNotFinished(t *testing.T) {
	r := finishingRig("p01")
	for _, after := range []time.Duration{RetryInterval, 2 * RetryInterval} {
		r.Try("p01")
		want(t, "before its time", r.after(after-soon))
		want(t, "in its time", r.after(2*soon), "p01")
	}
	for name, finish := range map[string]func(types.UID){"asked": func(uid types.UID) { r.Asked(uid) }, "reserved": r.Reserved} {
		r.Try("p01")
		finish("p01")
		want(t, name, r.after(time.Hour))
	}
	r.Try("p01")
	r.RetryLater("p01")
	r.Asked("p01")
	want(t, "to be tried again whatever came of the last try", r.after(RetryInterval), "p01")
	r.Try("p01")
	want(t, "when the times begin anew", r.after(RetryInterval+soon), "p01")
	r.Try("p01")
	r.free("cam")
	want(t, "meanwhile an event", r.after(0), "p01")
	r.Try("p01")
	want(t, "the event does not count", r.after(2*RetryInterval), "p01")
	r.Try("p01")
	r.Delete("p01")
	want(t, "gone", r.after(time.Hour))
}

// A try that takes longer than the time that it has is made again, though it has an answer then,
// and the next one has more time: it is not made over and over.
func TestSlowTry(t *testing.T) {
	r := finishingRig("p01")
	r.Try("p01")
	want(t, "given up", r.after(3*RetryInterval/2), "p01")
	r.Asked("p01")
	want(t, "once more", r.after(RetryInterval), "p01")
	r.Try("p01")
	want(t, "within its time", r.after(3*RetryInterval/2))
	r.Asked("p01")
	want(t, "with its answer", r.after(time.Hour))
}

// A try that did not look at all is made again, after ever longer times, and goes on where it
// ended, also when an event comes between.
func TestUnfinished(t *testing.T) {
	r := finishingRig("p01")
	try := func(want int) {
		t.Helper()
		r.Try("p01")
		if from := r.Asked("p01"); from != want {
			t.Errorf("the try goes on from %d, want %d", from, want)
		}
	}
	try(0)
	want(t, "while it takes its time", r.after(time.Hour))
	for i, after := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		r.Unfinished("p01", i+1)
		want(t, fmt.Sprint("before its time ", i), r.after(after*time.Second-soon))
		want(t, fmt.Sprint("in its time ", i), r.after(2*soon), "p01")
		try(i + 1)
	}
	r.Unfinished("p01", 12)
	r.free("cam")
	want(t, "after an event", r.after(soon), "p01")
	try(12)
	r.Unfinished("p01", 5)
	r.Try("p01")
	r.Asked("p01")
	want(t, "finished", r.after(time.Hour))
	try(0)
	r.Unfinished("p01", 1)
	want(t, "when the times begin anew", r.after(time.Second+soon), "p01")
}
