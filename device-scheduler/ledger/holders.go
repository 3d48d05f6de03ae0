package ledger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Conflict is a slot that a second pod holds.
type Conflict struct {
	Slot   slot.Name
	Holder Pod // had it first
}

// Assume makes the pod hold slots that a Draft has just chosen on the node,
// before it is bound. It is an error if one is no longer free, and then nothing
// changes. What is gained was kept for less important pods, whose plans this ends.
func (l *Ledger) Assume(pod Pod, node string, a Assignment) (Event, error) {
	if l.pods[pod.UID] != nil {
		return Event{}, fmt.Errorf("pod %s (UID %s) already holds slots", pod, pod.UID)
	}
	holds := a.holds()
	if at := l.notFree(pod, holds); at >= 0 {
		return Event{}, fmt.Errorf("slot %s is no longer free", holds[at].slot)
	}
	var event Event
	l.add(&podRecord{Pod: pod, node: node, holds: holds}, &event)
	return event, nil
}

// FreeFor reports whether Assume would give the pod the slots.
func (l *Ledger) FreeFor(pod Pod, a Assignment) bool { return l.notFree(pod, a.holds()) < 0 }

// notFree is the place of the first slot that somebody has or that is kept from the pod; below 0 for none.
func (l *Ledger) notFree(pod Pod, holds []hold) int {
	return slices.IndexFunc(holds, func(h hold) bool {
		d := l.devices[h.slot.Instance]
		return d == nil || !d.freeFor(pod, h.slot.Index)
	})
}

// Check reports why an assumed pod should not be bound with its slots after all:
// since Assume, a device has gone, or somebody else has taken a slot.
func (l *Ledger) Check(uid string) error {
	p := l.pods[uid]
	if p == nil {
		return errors.New("its slots have been given back")
	}
	for _, h := range p.holds {
		d := l.devices[h.slot.Instance]
		s := d.at(h.slot.Index)
		switch {
		case !d.exists():
			return fmt.Errorf("slot %s: Instance %s does not exist any more", h.slot, d.name)
		case !d.reachedBy(l.nodes[p.node]):
			return fmt.Errorf("slot %s: Instance %s cannot be reached from node %s any more", h.slot, d.name, p.node)
		case h.slot.Index >= d.capacity:
			return fmt.Errorf("slot %s: Instance %s has capacity %d now", h.slot, d.name, d.capacity)
		case !p.owns(s.claimed()):
			return fmt.Errorf("slot %s has been claimed by node %s for another (%s)", h.slot, s.claim.node.name, s.claim.holder)
		}
		if other := s.boundHolder(p); other != nil {
			return fmt.Errorf("slot %s has been assigned to pod %s by another scheduler", h.slot, other.Pod)
		}
	}
	return nil
}

// boundHolder returns a pod other than this one that is bound with the slot.
func (s *slotState) boundHolder(but *podRecord) *podRecord {
	for _, p := range s.holders {
		if p != but && p.bound {
			return p
		}
	}
	return nil
}

// Forget undoes Assume, unless the pod has been observed bound since.
func (l *Ledger) Forget(uid string) Event {
	if p := l.pods[uid]; p == nil || p.bound {
		return Event{}
	}
	return l.Remove(uid)
}

// Observe records a bound pod as the API shows it. The first assignment seen
// bound stays: an annotation edited afterwards changes nothing. It returns the
// slots that another bound pod holds already; the pod holds them too.
func (l *Ledger) Observe(pod Pod, node string, a Assignment) ([]Conflict, Event) {
	var event Event
	if p := l.pods[pod.UID]; p != nil {
		if p.bound {
			return nil, Event{}
		}
		holds := a.holds()
		if p.node == node && p.Priority == pod.Priority && slices.Equal(p.holds, holds) {
			p.Pod, p.bound = pod, true
			return l.conflicts(p), Event{}
		}
		// Bound otherwise than assumed: by another scheduler.
		event = l.Remove(pod.UID)
	}
	if len(a) == 0 {
		return nil, event
	}
	p := &podRecord{Pod: pod, node: node, holds: a.holds(), bound: true}
	l.add(p, &event)
	return l.conflicts(p), event
}

// conflicts lists the slots that other bound pods hold too. A pod that is only
// assumed is not yet in conflict: see Check.
func (l *Ledger) conflicts(p *podRecord) []Conflict {
	var found []Conflict
	for _, h := range p.holds {
		if other := l.slot(h.slot).boundHolder(p); other != nil {
			found = append(found, Conflict{Slot: h.slot, Holder: other.Pod})
		}
	}
	return found
}

// Remove records that a pod is gone, or has ended.
func (l *Ledger) Remove(uid string) Event {
	var event Event
	p := l.pods[uid]
	if p == nil {
		return event
	}
	delete(l.pods, uid)
	delete(l.terminating, uid)
	for _, h := range p.holds {
		d := l.devices[h.slot.Instance]
		s := d.at(h.slot.Index)
		s.holders = slices.DeleteFunc(s.holders, func(o *podRecord) bool { return o == p })
		d.config.countPriority(p.Priority, -1)
		if h.cl {
			d.clOnNode.add(p.node, -1)
		}
	}
	l.refreshAll(p.holds, &event)
	for _, h := range p.holds {
		if d := l.devices[h.slot.Instance]; h.cl && d != nil && d.exists() && d.config.oncePerNode() {
			event.nodeFreed(d, p)
		}
	}
	return event
}

// nodeFreed records what pods on the node of one that has gone may have of a device of which it had a
// slot: another slot, though this one may stay taken. Pods above that one could have preempted it,
// unless it was being deleted already.
func (e *Event) nodeFreed(d *device, gone *podRecord) {
	for _, s := range d.slots {
		if gone.terminating || d.access(s).priority <= gone.Priority {
			e.preemptible(d, s)
		}
	}
	d.offered = offer{}
	e.freed(d)
}

// add makes the pod hold its slots. A nomination that kept one of them for another
// pod cannot come true any more and ends.
func (l *Ledger) add(p *podRecord, event *Event) {
	var released []hold
	l.pods[p.UID] = p
	for i, h := range p.holds {
		d := l.device(h.slot.Instance)
		p.holds[i].slot.Instance = d.name // one copy
		s := d.know(h.slot.Index)
		s.holders = append(s.holders, p)
		d.config.countPriority(p.Priority, 1)
		if h.cl {
			d.clOnNode.add(p.node, 1)
		}
		if n := s.nominee; n != nil && n.UID != p.UID {
			released = append(released, l.displace(n, event)...)
		}
	}
	// What is kept for the pod itself stays kept, should it have to give it back,
	// unless it has taken something else.
	if n := l.nominations[p.UID]; n != nil && !slices.Equal(n.holds, p.holds) {
		released = append(released, l.end(p.UID)...)
	}
	l.refreshAll(p.holds, event)
	l.refreshAll(released, event)
}

// countPriority counts n more slots, or fewer, that pods of the priority hold.
func (conf *configRecord) countPriority(priority int32, n int) {
	if conf == nil {
		return // no node has reported the device yet
	}
	if conf.priorities[priority] += n; conf.priorities[priority] == 0 {
		delete(conf.priorities, priority)
	}
}

// heldBelow reports whether pods of a lower priority hold slots.
func (conf *configRecord) heldBelow(priority int32) bool {
	for held := range conf.priorities {
		if held < priority {
			return true
		}
	}
	return false
}

// Bound reports whether the pod holds slots and has been observed bound.
func (l *Ledger) Bound(uid string) bool {
	p := l.pods[uid]
	return p != nil && p.bound
}

// Holds returns the slots that a pod holds, in order; nil if none.
func (l *Ledger) Holds(uid string) []slot.Name {
	if p := l.pods[uid]; p != nil {
		return slotsOf(p.holds)
	}
	return nil
}

// Holders returns the pods that hold the slot, those that are being deleted included.
func (l *Ledger) Holders(s slot.Name) []Pod {
	var pods []Pod
	if state := l.slot(s); state != nil {
		for _, p := range state.holders {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}
