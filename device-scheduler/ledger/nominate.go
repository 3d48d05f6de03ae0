package ledger

import (
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Nominate keeps the assignment's slots for the pod, free or not. Whatever was
// kept for it before is let go, and so is all that is kept for a pod that one of
// these slots was kept for: it is displaced.
func (l *Ledger) Nominate(pod Pod, node string, a Assignment) Event {
	var event Event
	ended := []*nomination{l.end(pod.UID)}
	n := &nomination{Pod: pod, node: node, holds: a.holds()}
	for _, h := range n.holds {
		d := l.device(h.slot.Instance)
		s := d.know(h.slot.Index)
		if before := s.nominee; before != nil {
			l.end(before.UID)
			event.Displaced = append(event.Displaced, before.UID)
			ended = append(ended, before)
		}
		s.nominee = n
		d.refresh(h.slot.Index)
	}
	l.nominations[pod.UID] = n
	for _, before := range ended {
		event.add(l.released(before))
	}
	return event
}

// ClearNomination lets go of what is kept for the pod.
func (l *Ledger) ClearNomination(uid string) Event { return l.released(l.end(uid)) }

// displace ends a nomination, if there is one, that cannot come true any more.
func (l *Ledger) displace(uid string) Event {
	n := l.end(uid)
	event := l.released(n)
	if n != nil {
		event.Displaced = append(event.Displaced, uid)
	}
	return event
}

// end ends a nomination and returns it, nil if there is none. What it kept is to be
// given to released.
func (l *Ledger) end(uid string) *nomination {
	n := l.nominations[uid]
	if n == nil {
		return nil
	}
	delete(l.nominations, uid)
	for _, h := range n.holds {
		l.devices[h.slot.Instance].at(h.slot.Index).nominee = nil
	}
	return n
}

// released is what others may get that was kept by a nomination which has ended.
func (l *Ledger) released(n *nomination) Event {
	var event Event
	if n == nil {
		return event
	}
	for _, h := range n.holds {
		d := l.devices[h.slot.Instance]
		if d == nil {
			continue // dropped, when another of its slots was released
		}
		if d.refresh(h.slot.Index) {
			event.freed(d)
		} else if least, ok := l.minPreemptorPriority(d, h.slot.Index); ok && least <= n.Priority {
			event.preemptible(d, h.slot.Index)
		}
		l.forget(d, h.slot.Index)
	}
	return event
}

// endUnreachable ends the nominations that keep a slot of the device which is no longer to
// be had from their node.
func (l *Ledger) endUnreachable(d *device) Event {
	var event Event
	if len(l.nominations) == 0 {
		return event
	}
	for _, s := range slices.Clone(d.slots) {
		n := s.nominee
		if n != nil && (s.index >= d.capacity || !d.reaches(n.node)) {
			event.add(l.displace(n.UID))
		}
	}
	return event
}

// Nominated returns the node for which slots are kept for the pod; "" if none are.
func (l *Ledger) Nominated(uid string) string {
	if n := l.nominations[uid]; n != nil {
		return n.node
	}
	return ""
}

// Ready reports whether slots are kept for the pod and it may take all of them: it
// could be bound.
func (l *Ledger) Ready(uid string) bool {
	n := l.nominations[uid]
	return n != nil && !slices.ContainsFunc(n.holds, func(h hold) bool {
		d := l.devices[h.slot.Instance]
		return !l.freeFor(n.Pod, d, h.slot.Index) ||
			h.cl && d.config.unique() == akriv0.UniquePerNode && d.clOnNode.of(n.node) > 0
	})
}

// keepsFrom reports whether the nomination keeps its slots from the pod: not from the
// nominee itself, and not from pods of higher priority.
func (n *nomination) keepsFrom(pod Pod) bool {
	return n != nil && n.UID != pod.UID && n.Priority >= pod.Priority
}

// keptFor counts the device's slots that only nominations keep from being free, and not from
// the pod.
func (d *device) keptFor(pod Pod) int {
	n := 0
	for _, s := range d.config.waiting[d] {
		if !s.nominee.keepsFrom(pod) {
			n++
		}
	}
	return n
}

// freeFor reports whether the pod may take the slot.
func (l *Ledger) freeFor(pod Pod, d *device, index int) bool {
	if d.isFree(index) {
		return true
	}
	s := d.at(index)
	return s != nil && d.available(index) && !s.nominee.keepsFrom(pod)
}
