package usb

import (
	"maps"
	"reflect"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// newDelay is how long a device that was plugged in is watched before it is reported:
	// its drivers make its nodes one after the other, and the main node must be right.
	newDelay = 400 * time.Millisecond

	// changeDelay is how long a change waits for others.
	changeDelay = 100 * time.Millisecond

	// goneDelay is how long a device stands that was unplugged: it may be re-enumerated,
	// as after a reset or an update of its firmware, and come back with other nodes.
	goneDelay = 600 * time.Millisecond
)

// settled holds back what is found until it has settled. It has no clock. Not safe for
// concurrent use.
type settled struct {
	entries map[string]*entry // by ID
	started bool
}

// entry is a device that is there, or was until lately.
type entry struct {
	reported *discovery.Device // nil before it is
	current  *discovery.Device // nil while it is gone
	due      time.Time         // when current is to be reported; zero if it is
}

func newSettled() *settled { return &settled{entries: map[string]*entry{}} }

// observe takes what is there now. What is there the first time has settled.
func (s *settled) observe(now time.Time, found map[string]discovery.Device) {
	for id, device := range found {
		e := s.entries[id]
		if e == nil {
			e = &entry{due: now.Add(newDelay)}
			if !s.started {
				e.due = now
			}
			s.entries[id] = e
		}
		switch {
		case e.reported != nil && e.current == nil:
			e.due = now.Add(newDelay) // it is back
		case e.due.IsZero() && !reflect.DeepEqual(*e.reported, device):
			e.due = now.Add(changeDelay)
		}
		e.current = &device
	}
	for id, e := range s.entries {
		switch _, there := found[id]; {
		case there || e.current == nil:
		case e.reported == nil:
			delete(s.entries, id)
		default:
			e.current, e.due = nil, now.Add(goneDelay)
		}
	}
	s.started = true
}

// advance returns what to report now, and when to call again; zero if only after the
// next observe.
func (s *settled) advance(now time.Time) (devices map[string]discovery.Device, next time.Time) {
	devices = map[string]discovery.Device{}
	for id, e := range maps.Clone(s.entries) {
		if !e.due.IsZero() && !e.due.After(now) {
			e.reported, e.due = e.current, time.Time{}
		}
		if e.reported == nil && e.current == nil {
			delete(s.entries, id)
			continue
		}
		if e.reported != nil {
			devices[id] = *e.reported
		}
		if !e.due.IsZero() && (next.IsZero() || e.due.Before(next)) {
			next = e.due
		}
	}
	return devices, next
}
