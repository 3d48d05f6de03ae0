package remote

import "time"

const (
	// breakAfter is how many calls in a row run into their deadlines until the plugin is not called.
	breakAfter = 3
	// minPause and maxPause bound how long it is not called then. Each call that tries and runs into
	// its deadline doubles the pause.
	minPause, maxPause = time.Second, 30 * time.Second
)

// outcome is how a call ended.
type outcome int

const (
	answered outcome = iota // also with an error
	late                    // it ran into its deadline
	cut                     // the caller gave up, or the server ended: it says nothing
)

// breaker decides whether a server is called. The zero value lets calls through. It is a pure state
// machine: its owner locks it, and gives it the time.
type breaker struct {
	late   int           // calls in a row
	pause  time.Duration // 0 while calls are let through
	until  time.Time     // when a call may try
	trying bool          // a call does
	tries  int           // calls that tried so far
}

// open reports whether calls are not let through, but for one that tries once the pause is over.
func (b *breaker) open() bool { return b.pause > 0 }

// paused reports whether no call is let through.
func (b *breaker) paused(now time.Time) bool { return b.open() && (b.trying || now.Before(b.until)) }

// begin reports whether a call may be made. The number of a call that tries, which is to be given to
// end, is above 0.
func (b *breaker) begin(now time.Time) (try int, ok bool) {
	switch {
	case !b.open():
		return 0, true
	case b.paused(now):
		return 0, false
	}
	b.trying = true
	b.tries++
	return b.tries, true
}

// end takes how a call ended. One that tried in a pause that the answer of another has ended is one
// like any other.
func (b *breaker) end(now time.Time, try int, how outcome) {
	tries := b.trying && try == b.tries
	if tries {
		b.trying = false
	}
	switch {
	case how == answered:
		*b = breaker{tries: b.tries}
	case how == late && !b.open():
		if b.late++; b.late >= breakAfter {
			b.pause = minPause
			b.until = now.Add(b.pause)
		}
	case how == late && tries:
		b.pause = min(2*b.pause, maxPause)
		b.until = now.Add(b.pause)
	}
}
