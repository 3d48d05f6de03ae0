package await

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// failed notes how a test fails, and lets it go on.
type failed struct {
	testing.TB
	why string
}

func (*failed) Helper() {}

func (f *failed) Fatalf(format string, values ...any) {
	f.why = fmt.Sprintf(format, values...)
	panic(f)
}

// wait returns why the test fails in f, and how long that took.
func wait(f func(testing.TB)) (why string, took time.Duration) {
	defer func(began time.Time) {
		took = time.Since(began)
		if end, ok := recover().(*failed); ok {
			why = end.why
		}
	}(time.Now())
	f(&failed{})
	return "", 0
}

func TestThat(t *testing.T) {
	const after = 90 * time.Second
	for name, test := range map[string]struct {
		wait func(t testing.TB, holds func() bool)
		want string // when it never holds
	}{
		"bool": {func(t testing.TB, holds func() bool) { That(t, "it", holds) }, "waited 2m0s for it"},
		"text": {func(t testing.TB, holds func() bool) {
			That(t, "it", func() (bool, string) { return holds(), "that" })
		}, "waited 2m0s for it; last seen: that"},
		"error": {func(t testing.TB, holds func() bool) {
			That(t, "it", func() error {
				if holds() {
					return nil
				}
				return errors.New("that")
			})
		}, "waited 2m0s for it; last seen: that"},
		"longer": {func(t testing.TB, holds func() bool) { Within(t, time.Hour, "it", holds) }, "waited 1h0m0s for it"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				late := func() bool { return time.Since(began) >= after }
				why, took := wait(func(t testing.TB) { test.wait(t, late) })
				if why != "" || took < after || took > after+time.Second {
					t.Errorf("after %s: %s", took, why)
				}
				if why, _ := wait(func(t testing.TB) { test.wait(t, func() bool { return false }) }); why != test.want {
					t.Errorf("fails with %q, want %q", why, test.want)
				}
			})
		})
	}
}

func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int)
		go func() {
			time.Sleep(time.Minute)
			c <- 7
			time.Sleep(time.Hour)
			close(c)
		}()
		if got := Next(t, "seven", c); got != 7 {
			t.Errorf("got %d", got)
		}
		if why, _ := wait(func(t testing.TB) { Next(t, "more", c) }); why != "waited 2m0s for more" {
			t.Errorf("fails with %q", why)
		}
		time.Sleep(time.Hour)
		if got := Next(t, "the end", c); got != 0 {
			t.Errorf("got %d of a closed channel", got)
		}
	})
}
