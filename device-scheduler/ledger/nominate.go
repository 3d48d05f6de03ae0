package ledger

import (
	"maps"
	"slices"
)

// Nominate keeps the assignment's slots for the pod, free or not. Whatever was
// kept for it before is let go, and so is all that is kept for a pod that one of
// these slots was kept for: it is displaced.
//
// Where one of them is withheld, nothing is kept: the pod is displaced itself.
func (l *Ledger) Nominate(pod Pod, node string, a Assignment) Event {
	if slices.ContainsFunc(a.holds(), func(h hold) bool {
		d := l.devices[h.slot.Instance]
		return d != nil && d.withheld
	}) {
		event := Event{Displaced: []string{pod.UID}}
		l.refreshAll(l.end(pod.UID), &event)
		return event
	}
	return l.keep(&nomination{Pod: pod, node: node, holds: a.holds()})
}

// KeepUntilClaimed is Nominate for a pod that is bound, or about to be, to a node which chooses slots itself
// and claims them a moment later. It goes on after a change of the allocator: such a pod has its slots.
func (l *Ledger) KeepUntilClaimed(pod Pod, node string, a Assignment) Event {
	return l.keep(&nomination{Pod: pod, node: node, holds: a.holds(), bound: true})
}

func (l *Ledger) keep(n *nomination) Event {
	var event Event
	released := l.end(n.UID)
	for _, h := range n.holds {
		s := l.device(h.slot.Instance).know(h.slot.Index)
		if before := s.nominee; before != nil {
			released = append(released, l.displace(before, &event)...)
		}
		s.nominee = n
	}
	l.nominations[n.UID] = n
	l.refreshAll(n.holds, &event)
	l.refreshAll(released, &event)
	return event
}

// ClearNomination lets go of what is kept for the pod.
func (l *Ledger) ClearNomination(uid string) Event {
	var event Event
	l.refreshAll(l.end(uid), &event)
	return event
}

// displace ends a nomination that cannot come true any more, and returns what it kept, as end does.
func (l *Ledger) displace(n *nomination, event *Event) []hold {
	event.Displaced = append(event.Displaced, n.UID)
	return l.end(n.UID)
}

// end ends a nomination, if there is one. It returns the slots that it kept, which are to be
// refreshed.
func (l *Ledger) end(uid string) []hold {
	n := l.nominations[uid]
	if n == nil {
		return nil
	}
	delete(l.nominations, uid)
	for _, h := range n.holds {
		l.slot(h.slot).nominee = nil
	}
	return n.holds
}

// endUnreachable ends the nominations that keep a slot of the device which is no longer to
// be had from their node, or from any since it is withheld.
func (l *Ledger) endUnreachable(d *device, event *Event) {
	if len(l.nominations) == 0 {
		return
	}
	for _, s := range slices.Clone(d.slots) {
		n := s.nominee
		if n != nil && (s.index >= d.capacity || !d.reachedBy(l.nodes[n.node]) || d.withheld && !n.bound) {
			l.refreshAll(l.displace(n, event), event)
		}
	}
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
		return !d.freeFor(n.Pod, h.slot.Index) ||
			h.cl && d.config.oncePerNode() && d.clOnNode.of(n.node) > 0
	})
}

// ReadyFor returns the UIDs of pods that could be bound now, see Ready, and that slots of the
// Instance are kept for, in order; none for another name.
func (l *Ledger) ReadyFor(instance string) []string {
	d := l.devices[instance]
	if d == nil || d.config == nil {
		return nil
	}
	nominees := map[string]bool{}
	for _, s := range d.config.waiting[d] {
		nominees[s.nominee.UID] = true
	}
	ready := slices.DeleteFunc(slices.Collect(maps.Keys(nominees)), func(uid string) bool { return !l.Ready(uid) })
	slices.Sort(ready)
	return ready
}
