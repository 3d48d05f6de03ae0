package ledger

import (
	"fmt"
	"slices"
	"strings"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func (l *Ledger) node(name string) *nodeRecord {
	n := l.nodes[name]
	if n == nil {
		n = &nodeRecord{name: strings.Clone(name), number: l.numbers.give(), key: keyOf(name)}
		l.nodes[n.name] = n
	}
	return n
}

func (l *Ledger) dropNode(n *nodeRecord) {
	if len(n.slices) == 0 && n.claims == 0 && !n.known {
		delete(l.nodes, n.name)
		l.numbers.takeBack(n.number)
	}
}

// selected reports whether the node is one of those that discover the Configuration's
// devices and reach them all.
func (n *nodeRecord) selected(c *akriv0.Configuration) bool {
	if !n.known {
		return false
	}
	for key, want := range c.Spec.Discovery.NodeSelector {
		if got, found := n.labels[key]; !found || got != want {
			return false
		}
	}
	return true
}

// refuses says why the node's report does not count; "" if it may.
func (l *Ledger) refuses(n *nodeRecord, r *report) string {
	conf := r.device.config
	c := conf.owner
	switch of := l.configs[r.device.name]; {
	case c == nil:
		return "there is no such Configuration"
	case r.namespace.Value() != c.Namespace:
		return fmt.Sprintf("the name belongs to the Configuration of namespace %s, not to that of %s", c.Namespace, r.namespace.Value())
	case len(r.device.name)-len(conf.name)-1 != c.Spec.HashDigits():
		return fmt.Sprintf("the Configuration's instanceNameDigits are %d", c.Spec.HashDigits())
	case of != nil && of.owner != nil:
		return fmt.Sprintf("the name belongs to the Configuration %s, which is older than %s", of.ownerName(), conf.ownerName())
	case c.Spec.Discovery == nil:
		return ""
	case !r.shared:
		return "it is not shared, as spec.discovery of its Configuration demands"
	case !n.selected(c):
		return "spec.discovery of its Configuration does not select the node"
	}
	return ""
}

// lists reports whether the node reports it in another slice than that one.
func (n *nodeRecord) lists(r *report, but *sliceRecord) bool {
	return r.slices > 0 && slices.ContainsFunc(n.slices, func(s *sliceRecord) bool { return s != but && slices.Contains(s.reports, r) })
}

// all returns what the node reports of some devices, each once.
func (n *nodeRecord) all(of func(*device) bool) []*report {
	var all []*report
	for i, s := range n.slices {
		for _, r := range s.reports {
			earlier := func(s *sliceRecord) bool { return r.slices > 1 && slices.Contains(s.reports, r) }
			if of(r.device) && !slices.ContainsFunc(n.slices[:i], earlier) {
				all = append(all, r)
			}
		}
	}
	return all
}

// claimFacts are those of a claim that the node has on slot i.
func (l *Ledger) claimFacts(d *device, i int, n *nodeRecord) v1alpha1.ClaimFacts {
	if d.config == nil || d.config.owner == nil {
		return v1alpha1.ClaimFacts{Index: i}
	}
	return v1alpha1.ClaimFacts{Index: i, Capacity: d.config.owner.Spec.Slots(), Listed: d.reachedBy(n) || l.keeps(n, d), Given: d.exists()}
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
