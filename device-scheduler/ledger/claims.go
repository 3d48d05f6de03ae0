package ledger

import (
	"strings"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// SetClaim adds or updates a SlotClaim. It keeps nothing of c.
func (l *Ledger) SetClaim(c *v1alpha1.SlotClaim) Event {
	name, err := c.Slot()
	if err != nil {
		return Event{} // the API server has no such
	}
	d := l.device(name.Instance)
	s := d.know(name.Index)
	n := l.node(c.Spec.NodeName)
	n.claims++
	return l.replaceClaim(d, s, &claim{uid: strings.Clone(string(c.UID)), holder: strings.Clone(c.Spec.Holder),
		node: n, byDRA: c.Spec.ByDRA(), ofPod: c.Spec.Pod != nil})
}

// DeleteClaim removes the SlotClaim of that name.
func (l *Ledger) DeleteClaim(name string) Event {
	n, c := l.claim(name)
	if c == nil {
		return Event{}
	}
	d := l.devices[n.Instance]
	return l.replaceClaim(d, d.at(n.Index), nil)
}

func (l *Ledger) replaceClaim(d *device, s *slotState, c *claim) Event {
	var event Event
	old := s.claim
	s.claim = c
	l.refresh(d, s, &event)
	event.freed(d)
	l.dropDevice(d)
	if old != nil {
		old.node.claims--
		l.dropNode(old.node)
	}
	return event
}

// claim returns the SlotClaim of that name and its slot, nil when there is none.
func (l *Ledger) claim(name string) (slot.Name, *claim) {
	n, err := slot.Parse(name)
	if s := l.slot(n); err == nil && s != nil {
		return n, s.claim
	}
	return n, nil
}

// ClaimUID returns the UID of the SlotClaim as last set; "" when there is none.
func (l *Ledger) ClaimUID(name string) string {
	if _, c := l.claim(name); c != nil {
		return c.uid
	}
	return ""
}

// ClaimCounts reports whether the SlotClaim of that name is known, and makes its slot taken.
func (l *Ledger) ClaimCounts(name string) bool {
	_, c := l.claim(name)
	return c != nil && c.counts
}

// EachClaim calls visit with the name of each SlotClaim, in no order.
func (l *Ledger) EachClaim(visit func(name string)) {
	for _, d := range l.devices {
		for _, s := range d.slots {
			if s.claim != nil {
				visit(slot.Name{Instance: d.name, Index: s.index}.String())
			}
		}
	}
}
