// Package await has tests wait for what is to come about, rather than for a time that a slower machine needs longer
// than. Only tests import it.
package await

import (
	"fmt"
	"testing"
	"time"
)

// Patience is how long That and Next wait. What has not come by then does not come on a slow machine either.
const Patience = 2 * time.Minute

// Condition reports whether what is awaited has come about: with true, or with no error. Its text, or its error, says
// what is so instead.
type Condition interface {
	func() bool | func() (bool, string) | func() error
}

// That waits until the condition holds, and fails the test if it does not within Patience. what says what is awaited,
// as in "the pod to run". The test's goroutine calls the condition, again and again.
func That[C Condition](t testing.TB, what string, condition C) {
	t.Helper()
	Within(t, Patience, what, condition)
}

// Within is That with another limit, as for clusters.
func Within[C Condition](t testing.TB, limit time.Duration, what string, condition C) {
	t.Helper()
	for began := time.Now(); ; {
		holds, seen := check(condition)
		waited := time.Since(began)
		switch {
		case holds:
			return
		case waited > limit:
			t.Fatalf("waited %s for %s%s", limit, what, seen)
		}
		time.Sleep(min(time.Millisecond+waited/16, 50*time.Millisecond))
	}
}

func check(condition any) (holds bool, seen string) {
	switch is := condition.(type) {
	case func() bool:
		return is(), ""
	case func() error:
		err := is()
		return err == nil, fmt.Sprint("; last seen: ", err)
	default:
		holds, seen = condition.(func() (bool, string))()
		return holds, "; last seen: " + seen
	}
}

// Next returns the channel's next value, its zero value once it is closed, and fails the test if neither comes within
// Patience. what says what is awaited, as in "the plugin's answer".
func Next[T any](t testing.TB, what string, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(Patience):
		t.Fatalf("waited %s for %s", Patience, what)
	}
	return value
}
