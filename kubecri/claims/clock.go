package claims

import (
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// silenceClock is the clock that silence is measured by: the given one, or, of a real clock, one that
// goes on while the machine is suspended, as Go's does not.
func silenceClock(c clock.PassiveClock) clock.PassiveClock {
	if _, real := c.(clock.RealClock); real {
		return bootClock{}
	}
	return c
}

// bootClock is the time since the machine's start, as a time of 1970.
type bootClock struct{}

// Now implements clock.PassiveClock.
func (bootClock) Now() time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux has it
	}
	return time.Unix(now.Unix())
}

// Since implements clock.PassiveClock.
func (c bootClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
