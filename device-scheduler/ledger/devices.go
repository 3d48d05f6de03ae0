package ledger

import (
	"slices"
	"strings"
)

func (l *Ledger) device(name string) *device {
	d := l.devices[name]
	if d == nil {
		d = &device{name: strings.Clone(name), usage: notInUse}
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

// nodes are those that reach the device, sorted.
func (d *device) nodes() []string {
	if d.group == nil {
		return nil
	}
	return nodesOf(slices.Values(d.group.classes), d.group.nodes())
}

// reachedBy reports whether the node can reach the device; nil is a node that is not known.
func (d *device) reachedBy(n *nodeRecord) bool {
	return d.group != nil && d.config.classOf(n).reaches(d.group)
}

// resize gives a device that exists another capacity. Its slots are to be settled after that.
func (d *device) resize(capacity int) {
	before := d.supply()
	d.capacity = capacity
	d.nfree = d.countFree()
	d.changed(before)
}

// countFree counts the device's free slots.
func (d *device) countFree() int {
	if d.withheld {
		return 0
	}
	return d.capacity - d.taken.below(d.capacity)
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
