// Package contain runs code that is not ours, such as a plugin's, so that its
// panics, its exits and its hangs stay its own.
//
// It imports nothing of Kubeslot, so that the scheduler side and the node side
// can both use it.
package contain

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// ErrTimeout is in the error of a call that did not return in time.
var ErrTimeout = errors.New("did not return in time")

// ErrInvalid is in the error of a call whose result makes no sense.
var ErrInvalid = errors.New("invalid result")

// PanicError is a panic of the code that was run.
type PanicError struct {
	Value any
	Stack []byte // for the log; too long for a pod's event
}

// Error is the panic's value, on one line.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v", e.Value)
}

// errGoexit is the error of code that ended its goroutine: a t.FailNow, say.
var errGoexit = errors.New("ended its goroutine (runtime.Goexit) instead of returning")

// Do runs f on a goroutine of its own and returns its result. If f has not
// returned within the timeout it is left behind, still running: nothing that f
// writes to may be shared with anybody, all that it gives back goes through its
// result. A timeout of 0 or less means to wait for ever.
//
// late is called when a call that was left behind ends after all; it may be nil.
func Do[T any](timeout time.Duration, f func() (T, error), late func()) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome)
	abandoned := make(chan struct{})
	go func() {
		out := outcome{err: errGoexit}
		defer func() {
			if v := recover(); v != nil {
				out = outcome{err: &PanicError{Value: v, Stack: debug.Stack()}}
			}
			select {
			case done <- out:
			case <-abandoned:
				if late != nil {
					late()
				}
			}
		}()
		out.value, out.err = f()
	}()

	var expired <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case out := <-done:
		return out.value, out.err
	case <-expired:
		close(abandoned)
		var zero T
		return zero, fmt.Errorf("%w: %s", ErrTimeout, timeout)
	}
}
