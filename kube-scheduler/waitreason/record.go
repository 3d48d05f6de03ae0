package waitreason

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Record is how long a pod has waited, and for what. A nil Record takes note of nothing.
// Reason, Meet and Met may be called at any time; the caller serializes the other methods.
type Record struct {
	// since is when the last try began, or when the pod became known.
	since time.Time
	// seen has a bit for each reason that the last try has met.
	seen atomic.Uint32
	// spent is the time between tries, by the reason of the one before.
	spent [numReasons]time.Duration
}

// NewRecord is of a pod that becomes known now.
func NewRecord(now time.Time) *Record { return &Record{since: now} }

// Reason is why the last try failed, as far as it has got.
func (r *Record) Reason() Reason {
	if seen := r.seen.Load(); seen != 0 {
		return Reason(bits.Len32(seen) - 1)
	}
	return NotTried
}

// Try begins a try.
func (r *Record) Try(now time.Time) {
	r.spent[r.Reason()] += now.Sub(r.since)
	r.since = now
	r.seen.Store(1 << RefusedElsewhere)
}

// Meet takes note of a reason.
func (r *Record) Meet(reason Reason) {
	if r != nil && !r.Met(reason) {
		r.seen.Or(1 << reason)
	}
}

// Met reports whether the last try has met the reason.
func (r *Record) Met(reason Reason) bool { return r.seen.Load()&(1<<reason) != 0 }

// Spent calls visit with the times between tries, by the name of the reason.
func (r *Record) Spent(visit func(reason string, spent time.Duration)) {
	for reason, spent := range r.spent {
		if spent > 0 {
			visit(Names[reason], spent)
		}
	}
}
