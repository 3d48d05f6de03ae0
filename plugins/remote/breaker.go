package remote

import "time"

const (
	// breakAfter is how many calls in a row run into their deadlines until the plugin is not called.
	breakAfter = 3
	// minPause and maxPause bound how long it is not called then. Each call that tries doubles the
	// pause that follows unless it is answered.
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
	late  int           // calls in a row
	pause time.Duration // 0 while calls are let through
	until time.Time     // when the next call may try
}

// open reports whether calls are not let through, but for one that tries after each pause.
func (b *breaker) open() bool { return b.pause > 0 }

// paused reports whether no call is let through.
func (b *breaker) paused(now time.Time) bool { return b.open() && now.Before(b.until) }

// begin takes that a call is made, and reports whether it tries. The next pause begins at its deadline.
func (b *breaker) begin(now time.Time, timeout time.Duration) (tries bool) {
	if b.open() {
		b.pause = min(2*b.pause, maxPause)
		b.until = now.Add(timeout + b.pause)
	}
	return b.open()
}

// end takes how a call ended, and reports whether a pause has begun or ended with it.
func (b *breaker) end(now time.Time, how outcome) (changed bool) {
	before := b.open()
	switch {
	case how == answered:
		*b = breaker{}
	case how == late && !b.open():
		if b.late++; b.late >= breakAfter {
			b.pause, b.until = minPause, now.Add(minPause)
		}
	}
	return b.open() != before
}
