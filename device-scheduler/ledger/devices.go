package ledger

import (
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

func (l *Ledger) device(name string) *device {
	d := l.devices[name]
	if d == nil {
		d = &device{name: strings.Clone(name)}
		l.devices[d.name] = d
	}
	return d
}

// dropDevice forgets a device of which nothing is known any more.
func (l *Ledger) dropDevice(d *device) {
	if d.exists() || d.reports != nil || len(d.slots) > 0 {
		return
	}
	delete(l.devices, d.name)
	if d.config != nil {
		delete(d.config.devices, d)
		l.dropConfig(d.config)
	}
}

// exists reports whether any node reaches the device: only then it gives slots.
func (d *device) exists() bool { return d.group != nil }

// nodes are those that reach the device, sorted.
func (d *device) nodes() []string {
	if d.group == nil {
		return nil
	}
	var names []string
	for _, c := range d.group.classes {
		for _, n := range c.nodes {
			names = append(names, n.name)
		}
	}
	slices.Sort(names)
	return names
}

// reaches reports whether the node can reach the device.
func (d *device) reaches(node string) bool {
	return d.group != nil && d.config.classOf(node).reaches(d.group)
}

// resize gives the device another capacity. Its slots are to be settled after that.
func (d *device) resize(capacity int) {
	before := d.supply()
	if d.capacity = capacity; d.exists() {
		d.nfree = capacity - d.taken.below(capacity)
		d.changed(before)
	}
}

func (d *device) find(i int) (at int, found bool) {
	return slices.BinarySearchFunc(d.slots, i, func(s *slotState, i int) int { return s.index - i })
}

// at returns what is known of slot i, nil when nobody has it.
func (d *device) at(i int) *slotState {
	if at, found := d.find(i); found {
		return d.slots[at]
	}
	return nil
}

// slot returns what is known of a slot, nil when nobody has it.
func (l *Ledger) slot(s slot.Name) *slotState {
	if d := l.devices[s.Instance]; d != nil {
		return d.at(s.Index)
	}
	return nil
}

// know returns slot i for somebody to have, also when the device does not have it: an
// Instance may be seen after the pod or the claim, or shrink, and an assignment may be
// forged.
func (d *device) know(i int) *slotState {
	at, found := d.find(i)
	if !found {
		s := &slotState{index: i}
		s.access = d.access(s)
		d.slots = slices.Insert(d.slots, at, s)
	}
	return d.slots[at]
}

// available reports whether the device gives slot i, and nobody has it.
func (d *device) available(i int) bool {
	s := d.at(i)
	return d.exists() && i < d.capacity && (s == nil || len(s.holders) == 0 && s.claimed() == nil)
}

// resource returns the Configuration that a resource name asks for, or the Instance which it
// names, with its Configuration; nil if there is neither.
func (l *Ledger) resource(name string) (*configRecord, *device) {
	if conf := l.configs[name]; conf != nil && conf.owner != nil {
		return conf, nil
	}
	if d := l.devices[name]; d != nil && d.exists() {
		return d.config, d
	}
	return nil, nil
}

// owns reports whether a claim on a slot that the pod holds is the pod's own, or none.
func (p *podRecord) owns(c *claim) bool {
	return c == nil || c.holder == p.UID && c.node.name == p.node
}

// foreign reports whether the claim on the slot counts and is none of its holders'.
func (s *slotState) foreign() bool {
	c := s.claimed()
	return c != nil && !slices.ContainsFunc(s.holders, func(p *podRecord) bool { return p.owns(c) })
}

// claimFacts are those of a claim that the node has on slot i.
func (l *Ledger) claimFacts(d *device, i int, n *nodeRecord) v1alpha1.ClaimFacts {
	if d.config == nil || d.config.owner == nil {
		return v1alpha1.ClaimFacts{Index: i}
	}
	return v1alpha1.ClaimFacts{Index: i, Capacity: d.config.owner.Spec.Slots(), Listed: d.reaches(n.name) || l.keeps(n, d), Given: d.exists()}
}

// keeps reports whether the node lists the device though it gives no slots of it, or with
// spec.discovery, if the node is selected, whether any does. Where another device has the name,
// the node's claims are of that one, and do not count.
func (l *Ledger) keeps(n *nodeRecord, d *device) bool {
	by := func(r *report) bool { return r.keptBy[n] > 0 && l.refuses(n, r) == "" }
	if d.config.discovers() {
		by = func(r *report) bool {
			for lister := range r.keptBy {
				if l.refuses(lister, r) == "" {
					return n.selected(d.config.owner)
				}
			}
			return false
		}
	}
	for r := d.reports; r != nil; r = r.next {
		if (d.accepted == nil || d.accepted == r) && by(r) {
			return true
		}
	}
	return false
}
