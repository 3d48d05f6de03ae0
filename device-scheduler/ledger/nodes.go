package ledger

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// nodeRecord is a node that is known, or that slices or claims name.
type nodeRecord struct {
	name   string
	key    setKey // drawn
	slices []*sliceRecord
	claims int // that name the node
	known  bool
	labels map[string]string
}

func (l *Ledger) node(name string) *nodeRecord {
	n := l.nodes[name]
	if n == nil {
		n = &nodeRecord{name: strings.Clone(name), key: setKey{rand.Uint64(), rand.Uint64()}}
		l.nodes[n.name] = n
	}
	return n
}

func (l *Ledger) dropNode(n *nodeRecord) {
	if len(n.slices) == 0 && n.claims == 0 && !n.known {
		delete(l.nodes, n.name)
	}
}

// SetNode adds a node or updates its labels, which are not to be changed afterwards.
// They matter for Configurations with spec.discovery, and say whether the node is in
// device-plugin mode.
func (l *Ledger) SetNode(name string, labels map[string]string) Event {
	return l.setNode(l.node(name), true, labels)
}

// DeleteNode removes a node: spec.discovery does not select it any more. What its
// DeviceSlices report counts until they are deleted too.
func (l *Ledger) DeleteNode(name string) Event {
	n := l.nodes[name]
	if n == nil {
		return Event{}
	}
	event := l.setNode(n, false, nil)
	l.dropNode(n)
	return event
}

func (l *Ledger) setNode(n *nodeRecord, known bool, labels map[string]string) Event {
	if n.known == known && maps.Equal(n.labels, labels) {
		n.labels = labels
		return Event{}
	}
	after := nodeRecord{known: known, labels: labels}
	u := l.update()
	var entered []*kind
	for _, k := range l.kinds {
		switch {
		case !k.discovers() || n.selected(k.owner) == after.selected(k.owner):
		case after.selected(k.owner):
			entered = append(entered, k)
		default:
			u.leave(n, n.all(k.has))
			u.toggle(n, k, noSlot)
		}
	}
	if n.claims > 0 && n.choosesSlots() != after.choosesSlots() {
		for name, c := range l.claims {
			if c.node == n {
				u.touch(l.devices[name.Instance], noSlot)
			}
		}
	}
	n.known, n.labels = known, labels
	for _, k := range entered {
		u.toggle(n, k, 0)
		u.join(n, n.all(k.has))
	}
	return u.done()
}

// toggle adds the node to those that reach all of the kind's devices or, if it is among
// them, removes it.
func (u *update) toggle(n *nodeRecord, k *kind, fresh int) {
	k.selected.toggle(n)
	var all []*device
	for d := range k.devices {
		if d.exists() {
			all = append(all, d)
			u.touch(d, fresh)
		}
	}
	shift(n, all)
}

// choosesSlots reports whether the node is in device-plugin mode. There a pod that has a
// slot does not say so: its claim alone does, also when the node does not see the device
// any more, or its discovery handler does not answer. The controller keeps such claims.
func (n *nodeRecord) choosesSlots() bool {
	return n.known && n.labels[v1alpha1.ModeLabel] == v1alpha1.ModeDevicePlugin
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
