package ledger

import (
	"fmt"
	"slices"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Pod identifies a pod. UIDs tell same-named pods apart.
type Pod struct {
	UID, Namespace, Name string
	// Priority is spec.priority.
	Priority int32
	// Bound is when the pod was bound, in Unix seconds; 0 while it is not.
	Bound int64
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// podRecord is a pod and the slots it holds.
type podRecord struct {
	Pod
	node  string
	holds []hold
	// ending is set while the pod is being deleted: its slots will be free.
	ending bool
	// bound is set once the API has shown the pod bound; only then is its
	// assignment beyond undoing.
	bound bool
}

// hold is one slot, once, however many of the pod's containers use it in turn.
type hold struct {
	slot slot.Name
	cl   bool
}

// Assignment is the slots of a pod's containers, by container name.
type Assignment map[string][]assignment.Grant

func (a Assignment) holds() []hold {
	var holds []hold
	for _, grants := range a {
		for _, g := range grants {
			h := hold{slot: g.Slot, cl: !g.InstanceLevel()}
			if !slices.Contains(holds, h) {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// Conflict is a slot that a second pod holds.
type Conflict struct {
	Slot   slot.Name
	Holder Pod // had it first
}

// Assume makes the pod hold slots that a Draft has just chosen on the node,
// before it is bound. It is an error if one is no longer free, and then nothing
// changes.
func (l *Ledger) Assume(pod Pod, node string, a Assignment) error {
	if l.pods[pod.UID] != nil {
		return fmt.Errorf("pod %s (UID %s) already holds slots", pod, pod.UID)
	}
	holds := a.holds()
	for _, h := range holds {
		if d := l.devices[h.slot.Instance]; d == nil || !l.freeFor(pod, d, h.slot.Index) {
			return fmt.Errorf("slot %s is no longer free", h.slot)
		}
	}
	l.add(&podRecord{Pod: pod, node: node, holds: holds})
	return nil
}

// Forget undoes Assume, unless the pod has been observed bound since.
func (l *Ledger) Forget(uid string) Gain {
	if p := l.pods[uid]; p == nil || p.bound {
		return nil
	}
	return l.Remove(uid)
}

// Observe records a bound pod as the API shows it. The first assignment seen
// bound stays: an annotation edited afterwards changes nothing. It returns the
// slots that another pod holds already; the pod holds them too.
func (l *Ledger) Observe(pod Pod, node string, a Assignment) ([]Conflict, Gain) {
	var gain Gain
	if p := l.pods[pod.UID]; p != nil {
		if p.bound {
			return nil, nil
		}
		holds := a.holds()
		if p.node == node && sameHolds(p.holds, holds) {
			p.Pod, p.bound = pod, true
			return nil, nil
		}
		// Bound with another assignment than assumed: by another scheduler.
		gain = l.Remove(pod.UID)
	}
	if len(a) == 0 {
		return nil, gain
	}
	return l.add(&podRecord{Pod: pod, node: node, holds: a.holds(), bound: true}), gain
}

func sameHolds(a, b []hold) bool {
	if len(a) != len(b) {
		return false
	}
	for _, h := range a {
		if !slices.Contains(b, h) {
			return false
		}
	}
	return true
}

// Remove records that a pod is gone, or has ended.
func (l *Ledger) Remove(uid string) Gain {
	p := l.pods[uid]
	if p == nil {
		return nil
	}
	delete(l.pods, uid)
	var gain Gain
	for _, h := range p.holds {
		d := l.devices[h.slot.Instance]
		s := &d.slots[h.slot.Index]
		s.holders = slices.DeleteFunc(s.holders, func(u string) bool { return u == uid })
		if h.cl {
			if d.clOnNode[p.node]--; d.clOnNode[p.node] == 0 {
				delete(d.clOnNode, p.node)
			}
		}
		if d.refresh(h.slot.Index) || d.waitsForNominee(h.slot.Index) {
			gain = append(gain, d.kind.name, d.name)
		}
		l.dropDevice(d)
	}
	return gain
}

func (l *Ledger) add(p *podRecord) []Conflict {
	var conflicts []Conflict
	l.pods[p.UID] = p
	for _, h := range p.holds {
		d := l.device(h.slot.Instance)
		d.grow(h.slot.Index + 1)
		s := &d.slots[h.slot.Index]
		if len(s.holders) > 0 {
			conflicts = append(conflicts, Conflict{Slot: h.slot, Holder: l.pods[s.holders[0]].Pod})
		}
		s.holders = append(s.holders, p.UID)
		if h.cl {
			d.clOnNode[p.node]++
		}
		d.refresh(h.slot.Index)
	}
	return conflicts
}

// Bound reports whether the pod holds slots and has been observed bound.
func (l *Ledger) Bound(uid string) bool {
	p := l.pods[uid]
	return p != nil && p.bound
}

// Holds returns the slots that a pod holds, sorted by name; nil if none.
func (l *Ledger) Holds(uid string) []slot.Name {
	p := l.pods[uid]
	if p == nil {
		return nil
	}
	names := make([]slot.Name, 0, len(p.holds))
	for _, h := range p.holds {
		names = append(names, h.slot)
	}
	slices.SortFunc(names, compareSlots)
	return names
}
