package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/test/await"
)

// Updates that are kept are bounded by their size, too; the last is kept whatever it is.
func TestKeptUpdatesAreBounded(t *testing.T) {
	h := NewHub(newCluster(), clock.RealClock{})
	h.publish(nil)
	for range 10 {
		h.publish(make([]byte, keptBytes/4))
	}
	if len(h.recent) != 4 || cap(h.recent) > kept {
		t.Errorf("of updates of a quarter of what is kept %d are, want 4", len(h.recent))
	}
	h.publish(make([]byte, 2*keptBytes))
	if len(h.recent) != 1 {
		t.Errorf("beside an update of twice what is kept there are %d, want it alone", len(h.recent)-1)
	}
	h.state = &State{}
	if updates, _, _, err := h.After(h.seq - 1); err != nil || len(updates) != 1 || len(updates[0]) != 2*keptBytes {
		t.Errorf("a page that is one behind gets %d updates, %v; want the last", len(updates), err)
	}
}

// countedLive counts how often its objects are read.
type countedLive struct {
	*cluster
	reads atomic.Int32
}

func (c *countedLive) Objects() view.Objects {
	c.reads.Add(1)
	return c.cluster.Objects()
}

// The time that a Hub pauses is not taken for the next time that it looks by itself, and does not
// hold up the clock.
func TestTimeThatPassesInAPause(t *testing.T) {
	c := testclock.NewFakeClock(time.Now())
	live := &countedLive{cluster: newCluster()}
	h := NewHub(live, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	const rounds = 5
	for i := range rounds {
		await.That(t, fmt.Sprint("the Hub to pause, in round ", i),
			func() bool { return live.reads.Load() == int32(i+1) && c.Waiters() == 1 })
		stepped := make(chan struct{})
		go func() {
			defer close(stepped)
			c.Step(again)
		}()
		await.Next(t, "somebody to take what the timer sends", stepped)
		await.That(t, fmt.Sprint("the Hub to wait for its timer alone, in round ", i), func() bool {
			return c.Waiters() == 1
		})
		live.change(func(*view.Objects) {})
	}
	await.That(t, "the Hub to pause",
		func() bool { return live.reads.Load() > rounds && c.Waiters() == 1 })
	if reads := live.reads.Load(); reads != rounds+1 {
		t.Errorf("it has read the objects %d times for %d changes, want once for each and at first", reads, rounds)
	}
	cancel()
	<-done
}

// A page gets what it has missed, each update once and in order, or everything.
func TestAfter(t *testing.T) {
	c := small(t, time.Now())
	h := NewHub(c, clock.RealClock{})
	kinds := func(seq uint64) []string {
		t.Helper()
		updates, last, _, err := h.After(seq)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, text := range updates {
			var u Update
			if err := json.Unmarshal(text, &u); err != nil {
				t.Fatal(err)
			}
			kind := "change"
			if u.Full {
				kind = "full"
			}
			got = append(got, fmt.Sprint(kind, " ", u.Seq))
		}
		if last != h.seq {
			t.Errorf("After(%d) leads to %d, and the last is %d", seq, last, h.seq)
		}
		return got
	}
	changes := 0
	change := func() {
		changes++
		c.fail(errors.New(fmt.Sprint("failure ", changes)))
		h.refresh(t.Context())
	}
	is := func(what string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	is("before the first state", kinds(0))
	h.refresh(t.Context())
	is("a new page", kinds(0), "full 1")
	_, _, next, _ := h.After(1)
	change()
	select {
	case <-next:
	default:
		t.Error("a page that waits is not woken")
	}
	change()
	is("a page that is two behind", kinds(1), "change 2", "change 3")
	is("a page that is up to date", kinds(3))
	h.refresh(t.Context())
	is("nothing has changed", kinds(3))
	for h.seq < kept+1 {
		change()
	}
	if got := kinds(1); len(got) != kept || got[0] != "change 2" {
		t.Errorf("a page that is as far behind as may be gets %q, want the %d changes from change 2 on", got, kept)
	}
	change()
	is("a page that is too far behind", kinds(1), fmt.Sprint("full ", h.seq))
	is("a page that is not", kinds(h.seq-2), fmt.Sprint("change ", h.seq-1), fmt.Sprint("change ", h.seq))
	// What a page gets last is how it is, also when it was encoded before.
	is("a new page", kinds(0), fmt.Sprint("full ", h.seq))
	c.change(func(o *view.Objects) { o.Pods = nil })
	h.refresh(t.Context())
	is("another new page", kinds(0), fmt.Sprint("full ", h.seq))
}
