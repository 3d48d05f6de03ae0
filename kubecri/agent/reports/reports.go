// Package reports is the state of one Configuration's discovery on a node: what its
// sources have reported, which devices of that can be served, and what comes of it with
// time. All is functions of values: no clock, no I/O, no goroutines.
package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// UnschedulableAfter is how long devices that nobody reports any more are given to
	// new pods: a handler that is replaced by its next version needs less.
	UnschedulableAfter = 30 * time.Second

	// Registering is how long after the agent's start an endpoint that was registered
	// before may take to register again. Akri's handlers look every 10 s whether their
	// stream is dead, and then try every 10 s to register.
	Registering = 30 * time.Second
)

// Grace is how long devices stay known that are lost: whose source stopped working,
// so that nobody says whether they are there.
type Grace struct {
	// Shared is for devices that other nodes may reach too, Local for this node's own.
	Shared, Local time.Duration
}

// DefaultGrace is Akri's five minutes for devices on a network, and a minute for those
// that cannot be there without the node.
var DefaultGrace = Grace{Shared: 5 * time.Minute, Local: time.Minute}

// Age is how far lost devices have got.
type Age int

const (
	Usable        Age = iota
	Unschedulable     // no new slots are given of them on this node
	Withdrawn         // no longer known
)

func (g Grace) of(shared bool) time.Duration {
	if shared {
		return g.Shared
	}
	return g.Local
}

// age is that of devices that are lost since then.
func (g Grace) age(shared bool, since, now time.Time) Age {
	switch lost := now.Sub(since); {
	case lost >= g.of(shared):
		return Withdrawn
	case lost >= UnschedulableAfter:
		return Unschedulable
	}
	return Usable
}

// Earlier returns the earlier of two times, of which one that is zero is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// next is when age will be another; zero when never again.
func (g Grace) next(shared bool, since, now time.Time) time.Time {
	var next time.Time
	for _, after := range []time.Duration{UnschedulableAfter, g.of(shared)} {
		if at := since.Add(after); at.After(now) {
			next = Earlier(next, at)
		}
	}
	return next
}

// Reports are what the sources of one Configuration's handler have said, and so what
// is known of its devices:
//
//   - reported: a source that works has the device in its last report.
//   - gone: a source that works no longer reports it. It goes at once.
//   - lost: its source has stopped working. The last report counts until the grace is
//     over; after UnschedulableAfter no new pods get the device.
//   - unreported: the node's slices have the device, and no source has reported since the
//     session began. It is kept as if lost since then, until all sources have reported.
type Reports struct {
	grace Grace
	began time.Time // the session
	// registered is when all endpoints that a former life of the agent knew have had
	// the time to register.
	registered time.Time
	sources    []*sourceReport // of two that report a device the first counts
	// settled is true once all sources have reported, or have had the time to: then
	// there are no unreported devices. It stays true.
	settled bool
	// had are the hashes of all devices that were reported, until settled: one of these
	// that nobody reports is gone, or lost, and not unreported. Replaced, never changed.
	had map[string]bool
}

// sourceReport is the last report of one source.
type sourceReport struct {
	id      string
	builtIn bool

	reported bool // since the session began
	shared   bool
	devices  map[string]Device // by hash; replaced, never changed
	rejected []error           // why devices of it were left out
	lost     time.Time         // since when the source does not work; zero while it does
	failed   time.Time         // when it stopped working last
	removed  bool              // it is not a source any more
}

// Withdrawal is a lost source's report that no longer counts.
type Withdrawal struct {
	Source  string            // its id
	Devices map[string]Device // by hash; another source may have some of them
}

// New returns those of a session that begins now; registered is when all endpoints that
// a former life of the agent knew have had the time to register.
func New(grace Grace, began, registered time.Time) Reports {
	return Reports{grace: grace, began: began, registered: registered}
}

// Settled is true once all sources have reported, or have had the time to: then there
// are no unreported devices. It stays true.
func (r *Reports) Settled() bool { return r.settled }

// Last returns the devices of a source's last report, by hash; nil for none. They must
// not be changed.
func (r *Reports) Last(id string) map[string]Device {
	if s := r.source(id); s != nil {
		return s.devices
	}
	return nil
}

func (r *Reports) source(id string) *sourceReport {
	at := slices.IndexFunc(r.sources, func(s *sourceReport) bool { return s.id == id })
	if at < 0 {
		return nil
	}
	return r.sources[at]
}

// Join adds a source, which is now waited for.
func (r *Reports) Join(id string, builtIn bool) {
	if s := r.source(id); s != nil {
		s.removed = false
		return
	}
	r.sources = append(r.sources, &sourceReport{id: id, builtIn: builtIn})
	slices.SortFunc(r.sources, func(a, b *sourceReport) int {
		if a.builtIn != b.builtIn {
			if a.builtIn {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
}

// Report takes what a source sees: all of it.
func (r *Reports) Report(id string, shared bool, devices map[string]Device, rejected []error) {
	s := r.source(id)
	if s == nil {
		return
	}
	s.reported, s.shared, s.devices, s.rejected, s.lost = true, shared, devices, rejected, time.Time{}
	if !r.settled {
		had := make(map[string]bool, len(r.had)+len(devices))
		maps.Copy(had, r.had)
		for hash := range devices {
			had[hash] = true
		}
		r.had = had
	}
}

// Fail says that a source has stopped working.
func (r *Reports) Fail(id string, now time.Time) {
	s := r.source(id)
	if s == nil {
		return
	}
	s.failed = now
	if s.lost.IsZero() {
		s.lost = now
	}
}

// Remove says that a source will not come back by itself.
func (r *Reports) Remove(id string, now time.Time) {
	r.Fail(id, now)
	if s := r.source(id); s != nil {
		s.removed = true
	}
	r.sources = slices.DeleteFunc(r.sources, func(s *sourceReport) bool { return s.removed && !s.reported })
}

// Clear forgets all devices, and waits for no report: other nodes see them.
func (r *Reports) Clear() {
	for _, s := range r.sources {
		s.devices, s.rejected = nil, nil
	}
	r.settled, r.had = true, nil
}

// Expire drops the reports whose grace is over, and returns those that had devices.
func (r *Reports) Expire(now time.Time) []Withdrawal {
	var over []Withdrawal
	r.sources = slices.DeleteFunc(r.sources, func(s *sourceReport) bool {
		if !s.reported || s.lost.IsZero() || r.grace.age(s.shared, s.lost, now) < Withdrawn {
			return false
		}
		if len(s.devices) > 0 {
			over = append(over, Withdrawal{s.id, s.devices})
		}
		s.devices, s.rejected = nil, nil
		return s.removed
	})
	r.settled = r.settled || r.AllReported(now) ||
		r.unreported(true, now) == Withdrawn && r.unreported(false, now) == Withdrawn
	if r.settled {
		r.had = nil
	}
	return over
}

// Works is false when no source has worked for a while: another node may do better. One
// that has not failed since this node discovers is given the time to report.
func (r *Reports) Works(since, now time.Time) bool {
	return slices.ContainsFunc(r.sources, func(s *sourceReport) bool {
		return !s.removed && (s.lost.IsZero() || s.failed.Before(since) || now.Sub(s.lost) < UnschedulableAfter)
	})
}

// AllReported is true when no source is waited for. An endpoint may have the name of a
// handler that is built in, so until it has had the time to register, one is waited for.
func (r *Reports) AllReported(now time.Time) bool {
	for _, s := range r.sources {
		if !s.reported {
			return false
		}
	}
	return len(r.sources) > 0 && !now.Before(r.registered)
}

// unreported is how far devices have got that the slices have and no source has reported.
func (r *Reports) unreported(shared bool, now time.Time) Age {
	if r.settled {
		return Withdrawn
	}
	return r.grace.age(shared, r.began, now)
}

// Ages are those of shared devices, and of the node's own.
type Ages struct{ Shared, Local Age }

// Age is that of a device that is in the slices and not among Devices.
func (st *Standing) Age(hash string, shared bool) Age {
	switch {
	case st.Settled || st.Had[hash]:
		return Withdrawn
	case shared:
		return st.Unreported.Shared
	}
	return st.Unreported.Local
}

// Standing is what is known of a Configuration's devices at one time.
type Standing struct {
	Devices  map[string]Device // by hash; never changed
	Rejected []error           // why devices were left out
	// Settled is true when there are no devices but these. Until then those that the
	// slices have besides, and that are not among Had, are as Unreported says.
	Settled    bool
	Had        map[string]bool
	Unreported Ages
	// Next is when all this changes without a report; zero for never.
	Next time.Time
}

// Stands returns what is known now; call Expire before. named returns the id of the
// device that has a hash so far, "" for none.
func (r *Reports) Stands(now time.Time, named func(hash string) string) Standing {
	st := Standing{Settled: r.settled, Had: r.had, Unreported: Ages{r.unreported(true, now), r.unreported(false, now)}}
	soonest := func(at time.Time) { st.Next = Earlier(st.Next, at) }
	if !r.settled {
		soonest(r.grace.next(true, r.began, now))
		soonest(r.grace.next(false, r.began, now))
		if r.registered.After(now) {
			soonest(r.registered)
		}
	}
	// Of a device that several report, one that works counts before one that is lost, and
	// the one that was lost last before others.
	var works, lost []*sourceReport
	for _, s := range r.sources {
		switch {
		case s.lost.IsZero():
			works = append(works, s)
		case len(s.devices) > 0:
			lost = append(lost, s)
			soonest(r.grace.next(s.shared, s.lost, now))
		case s.removed && s.reported:
			soonest(r.grace.next(s.shared, s.lost, now)) // to be forgotten
		}
	}
	slices.SortStableFunc(lost, func(a, b *sourceReport) int { return b.lost.Compare(a.lost) })
	for _, s := range append(works, lost...) {
		st.merge(s, !s.lost.IsZero() && r.grace.age(s.shared, s.lost, now) >= Unschedulable, named)
	}
	return st
}

// merge adds the devices of a source that no source before it has reported.
func (st *Standing) merge(s *sourceReport, unschedulable bool, named func(hash string) string) {
	st.Rejected = append(st.Rejected, s.rejected...)
	if len(s.devices) == 0 {
		return
	}
	if len(st.Devices) == 0 && !unschedulable {
		st.Devices = s.devices // as nearly always
		return
	}
	all := make(map[string]Device, len(st.Devices)+len(s.devices))
	maps.Copy(all, st.Devices)
	dropped := 0
	for _, f := range slices.SortedFunc(maps.Values(s.devices), func(a, b Device) int { return cmp.Compare(a.ID, b.ID) }) {
		f.Unschedulable = unschedulable
		other, taken := all[f.Hash]
		switch {
		case taken && other.ID == f.ID:
		case taken && named(f.Hash) == f.ID:
			all[f.Hash] = f
			st.Rejected = reject(st.Rejected, rejection(other.ID, collision(f)))
		case taken:
			st.Rejected = reject(st.Rejected, rejection(f.ID, collision(other)))
		case len(all) == maxDevices:
			dropped++
		default:
			all[f.Hash] = f
		}
	}
	if dropped > 0 {
		st.Rejected = append(st.Rejected, fmt.Errorf(
			"%s reports %d devices beyond the %d that are taken of all sources", s.id, dropped, maxDevices))
	}
	st.Devices = all
}
