package ledger

import "maps"

// SetNode adds a node or updates its labels, which are not to be changed afterwards.
// They matter for Configurations with spec.discovery.
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
	var entered []*configRecord
	for _, conf := range l.configs {
		switch {
		case !conf.discovers() || n.selected(conf.owner) == after.selected(conf.owner):
		case after.selected(conf.owner):
			entered = append(entered, conf)
		default:
			u.leave(n, n.reportsOf(conf))
			u.toggle(n, conf)
		}
	}
	n.known, n.labels = known, labels
	for _, conf := range entered {
		for _, d := range u.toggle(n, conf) {
			d.renew()
		}
		u.join(n, n.reportsOf(conf))
	}
	return u.done()
}

// OnlyReports reports whether DeviceSlices of the node are known, and the node itself is not.
func (l *Ledger) OnlyReports(node string) bool {
	n := l.nodes[node]
	return n != nil && !n.known && len(n.slices) > 0
}

// Renew says that what the node reaches is new to pods: they could not have it there before.
func (l *Ledger) Renew(node string) Event {
	u, n := l.update(), l.nodes[node]
	for _, d := range l.devices {
		if d.reachedBy(n) {
			d.renew()
			u.touched[d] = true
		}
	}
	return u.settle()
}

// toggle adds the node to those that reach all of the Configuration's devices or, if it is among
// them, removes it. It returns the devices.
func (u *update) toggle(n *nodeRecord, conf *configRecord) []*device {
	var all []*device
	for d := range conf.devices {
		u.touched[d] = true // claims may count also of those that give no slots
		if d.exists() {
			all = append(all, d)
		}
	}
	shift(n, all)
	return all
}
