package ledger

import (
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
	return n.known && c.Spec.Discovery.Selects(n.labels)
}

// refuses says why the node's report does not count; nil if it may.
func (l *Ledger) refuses(n *nodeRecord, r *report) error {
	conf := r.device.config
	of := akriv0.Report{Namespace: r.namespace.Value(), HashDigits: len(r.device.name) - len(conf.name) - 1,
		Shared: r.shared, Selected: conf.discovers() && n.selected(conf.owner)}
	if namesake := l.configs[r.device.name]; namesake != nil {
		of.Namesake = namesake.owner
	}
	return conf.owner.Refuses(of)
}

// lists reports whether the node reports it in another slice than that one.
func (n *nodeRecord) lists(r *report, but *sliceRecord) bool {
	inSlice := func(s *sliceRecord) bool { return s != but && slices.Contains(s.reports, r) }
	return len(r.listed) > 0 && slices.ContainsFunc(n.slices, inSlice)
}

// reportsOf returns what the node reports of the Configuration's devices, each once.
func (n *nodeRecord) reportsOf(conf *configRecord) []*report {
	var all []*report
	for _, s := range n.slices {
		for _, r := range s.reports {
			if r.device.config == conf && !r.kept && (len(r.listed) == 1 || !slices.Contains(all, r)) {
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
	return v1alpha1.ClaimFacts{Index: i, Capacity: d.config.owner.Spec.Slots(), Listed: d.reachedBy(n) || l.keeps(n, d),
		Given: d.exists()}
}

// keeps reports whether the node lists the device though it gives no slots of it, or with
// spec.discovery, if the node is selected, whether any does. Where another device has the name,
// the node's claims are of that one, and do not count.
func (l *Ledger) keeps(n *nodeRecord, d *device) bool {
	if d.config.discovers() {
		return d.kept && n.selected(d.config.owner)
	}
	return d.anyKept(func(r *report) bool { return n.lists(r, nil) && l.refuses(n, r) == nil })
}

// discoveredKept reports whether a node that spec.discovery selects lists the device though it
// gives no slots of it.
func (l *Ledger) discoveredKept(d *device) bool {
	return d.config.discovers() && d.anyKept(func(r *report) bool {
		return slices.ContainsFunc(r.listed, func(s *sliceRecord) bool {
			return s.node.selected(d.config.owner) && l.refuses(s.node, r) == nil
		})
	})
}

// anyKept reports whether one of the device's kept reports is so; where another report counts, one of
// the same device.
func (d *device) anyKept(so func(*report) bool) bool {
	for r := d.reports; r != nil; r = r.next {
		if r.kept && (d.accepted == nil || d.accepted.about == r.about) && so(r) {
			return true
		}
	}
	return false
}
