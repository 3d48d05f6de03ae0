package contain

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// unmade returns nil, which staticcheck does not see.
func unmade() map[int]int { return nil }

func TestDo(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		f    func() (int, error)
		want int
		err  string
	}{
		"result":          {f: func() (int, error) { return 3, nil }, want: 3},
		"error":           {f: func() (int, error) { return 0, refused }, err: "refused"},
		"panic":           {f: func() (int, error) { panic("lost") }, err: "panic: lost"},
		"nil map":         {f: func() (int, error) { unmade()[1] = 1; return 0, nil }, err: "panic: assignment to entry in nil map"},
		"panic(nil)":      {f: func() (int, error) { panic(nil) }, err: "panic: panic called with nil argument"},
		"goroutine ended": {f: func() (int, error) { runtime.Goexit(); return 0, nil }, err: "Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Do(0, tc.f, nil)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("Do() = %d, %v", got, err)
			}
		})
	}
}

// A call that hangs is left behind after the timeout, and when it ends after
// all that is told once.
func TestDoLeavesAHangBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), 0
		start := time.Now()
		_, err := Do(time.Minute, func() (int, error) { <-release; panic("late") }, func() { ended++ })
		if !errors.Is(err, ErrTimeout) || time.Since(start) != time.Minute {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		synctest.Wait()
		if ended != 0 {
			t.Error("said to have ended while it hangs")
		}
		close(release)
		synctest.Wait()
		if ended != 1 {
			t.Errorf("told %d times that it ended", ended)
		}
	})
}
