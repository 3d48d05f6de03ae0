package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// A page gets what it has missed, each update once and in order, or everything.
func TestAfter(t *testing.T) {
	c := small(t, time.Now())
	h := NewHub(c, About{}, clock.RealClock{})
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
	for range kept {
		change()
	}
	is("a page that is too far behind", kinds(1), fmt.Sprint("full ", h.seq))
	is("a page that is not", kinds(h.seq-2), fmt.Sprint("change ", h.seq-1), fmt.Sprint("change ", h.seq))
	// What a page gets last is how it is, also when it was encoded before.
	is("a new page", kinds(0), fmt.Sprint("full ", h.seq))
	c.change(func(o *view.Objects) { o.Pods = nil })
	h.refresh(t.Context())
	is("another new page", kinds(0), fmt.Sprint("full ", h.seq))
}
