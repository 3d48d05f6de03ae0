package ledger

import (
	"errors"
	"fmt"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
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
	for _, h := range holds {
		if d := l.devices[h.slot.Instance]; d == nil || !l.freeFor(pod, d, h.slot.Index) {
			return Event{}, fmt.Errorf("slot %s is no longer free", h.slot)
		}
	}
	return l.add(&podRecord{Pod: pod, node: node, holds: holds}), nil
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
		case !d.reaches(p.node):
			return fmt.Errorf("slot %s: Instance %s cannot be reached from node %s any more", h.slot, d.name, p.node)
		case h.slot.Index >= d.capacity:
			return fmt.Errorf("slot %s: Instance %s has capacity %d now", h.slot, d.name, d.capacity)
		case !p.owns(s.claimed()):
			return fmt.Errorf("slot %s has been claimed by node %s for another (%s)", h.slot, s.claim.node.name, s.claim.holder)
		}
		if other := l.boundHolder(s, uid); other != nil {
			return fmt.Errorf("slot %s has been assigned to pod %s by another scheduler", h.slot, other.Pod)
		}
	}
	return nil
}

// boundHolder returns a pod other than this one that is bound with the slot.
func (l *Ledger) boundHolder(s *slotState, uid string) *podRecord {
	for _, other := range s.holders {
		if p := l.pods[other]; other != uid && p.bound {
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
		if p.node == node && slices.Equal(p.holds, holds) {
			p.Pod, p.bound = pod, true
			return l.conflicts(p), Event{}
		}
		// Bound with another assignment than assumed: by another scheduler.
		event = l.Remove(pod.UID)
	}
	if len(a) == 0 {
		return nil, event
	}
	p := &podRecord{Pod: pod, node: node, holds: a.holds(), bound: true}
	event.add(l.add(p))
	return l.conflicts(p), event
}

// conflicts lists the slots that other bound pods hold too. A pod that is only
// assumed is not yet in conflict: see Check.
func (l *Ledger) conflicts(p *podRecord) []Conflict {
	var found []Conflict
	for _, h := range p.holds {
		if other := l.boundHolder(l.devices[h.slot.Instance].at(h.slot.Index), p.UID); other != nil {
			found = append(found, Conflict{Slot: h.slot, Holder: other.Pod})
		}
	}
	return found
}

// Remove records that a pod is gone, or has ended.
func (l *Ledger) Remove(uid string) Event {
	p := l.pods[uid]
	if p == nil {
		return Event{}
	}
	for _, h := range p.holds {
		d := l.devices[h.slot.Instance]
		s := d.at(h.slot.Index)
		s.holders = slices.DeleteFunc(s.holders, func(u string) bool { return u == uid })
		if h.cl {
			d.clOnNode.add(p.node, -1)
		}
	}
	delete(l.pods, uid)
	delete(l.terminating, uid)
	event := l.leaves(p)
	for _, h := range p.holds {
		d := l.devices[h.slot.Instance]
		if d == nil {
			continue // dropped, since none of its slots is held any more
		}
		l.forget(d, h.slot.Index)
	}
	return event
}

// leaves is what others may get of what a pod has held, which is gone.
func (l *Ledger) leaves(p *podRecord) Event {
	var event Event
	cl := false // its slots of the device, so far
	for i, h := range p.holds {
		d := l.devices[h.slot.Instance]
		if d.refresh(h.slot.Index) || d.waitsForNominee(h.slot.Index) {
			event.freed(d)
		}
		// Those above another holder, or above a less important pod that the slot is kept
		// for, could have had it before, but for this one.
		s := d.at(h.slot.Index)
		if _, ok := l.minPreemptorPriority(d, h.slot.Index); ok && len(s.holders) > 0 || s.nominee != nil && p.Priority > s.nominee.Priority {
			event.preemptible(d, h.slot.Index)
		}
		cl = cl || h.cl
		if i == len(p.holds)-1 || p.holds[i+1].slot.Instance != d.name {
			// The node may take another of its slots, though this one may stay taken. Pods
			// above this one could have preempted it.
			if cl && d.exists() && d.config.unique() == akriv0.UniquePerNode {
				event.open(l, d, 0, p.Priority)
			}
			cl = false
		}
	}
	return event
}

// add makes the pod hold its slots. A nomination that kept one of them for another
// pod cannot come true any more and ends.
func (l *Ledger) add(p *podRecord) Event {
	var event Event
	l.pods[p.UID] = p
	for i, h := range p.holds {
		d := l.device(h.slot.Instance)
		p.holds[i].slot.Instance = d.name // one copy
		s := d.know(h.slot.Index)
		s.holders = append(s.holders, p.UID)
		if h.cl {
			d.clOnNode.add(p.node, 1)
		}
		d.refresh(h.slot.Index)
	}
	// What is kept for the pod itself stays kept, should it have to give it back,
	// unless it has taken something else.
	if n := l.nominations[p.UID]; n != nil && !slices.Equal(n.holds, p.holds) {
		event.add(l.ClearNomination(p.UID))
	}
	for _, h := range p.holds {
		if nominee := l.devices[h.slot.Instance].at(h.slot.Index).nominee; nominee != nil && nominee.UID != p.UID {
			event.add(l.displace(nominee.UID))
		}
	}
	for _, h := range p.holds {
		d := l.devices[h.slot.Instance]
		if d.at(h.slot.Index).claimed() == nil {
			continue
		}
		// Nobody could be preempted for the claim, before this pod was known.
		if _, ok := l.minPreemptorPriority(d, h.slot.Index); ok {
			event.preemptible(d, h.slot.Index)
		}
	}
	return event
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
		for _, uid := range state.holders {
			pods = append(pods, l.pods[uid].Pod)
		}
	}
	return pods
}
