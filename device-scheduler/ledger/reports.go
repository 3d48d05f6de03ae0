package ledger

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"unique"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// identity tells devices apart. Local ones of two nodes are two, though their ids be
// equal.
type identity struct{ id, node string }

func identityOf(d *v1alpha1.Device, node string) identity {
	if d.Shared {
		return identity{id: d.ID}
	}
	return identity{d.ID, node}
}

// report returns what the node says of the device.
func (l *Ledger) report(n *nodeRecord, of *v1alpha1.Device) *report {
	id := maphash.Comparable(l.seed, identityOf(of, n.name))
	d := l.device(of.Instance())
	if d.config == nil {
		d.config = l.config(of.Configuration.Name)
		d.config.devices[d] = struct{}{}
		for _, s := range d.slots {
			d.config.counts[s.counted.as]++
			for _, p := range s.holders {
				d.config.countPriority(p.Priority, 1)
			}
			d.config.wait(d, s, false, s.counted.as == nominated)
		}
	}
	at := &d.reports
	for ; *at != nil; at = &(*at).next {
		if r := *at; r.id == id && r.shared == of.Shared && r.namespace.Value() == of.Configuration.Namespace {
			return r
		}
	}
	*at = &report{device: d, namespace: unique.Make(of.Configuration.Namespace), id: id, shared: of.Shared}
	return *at
}

// leftOut returns an error if the node's report does not count, although its
// Configuration is known.
func (l *Ledger) leftOut(n *nodeRecord, r *report) error {
	d := r.device
	why := l.refuses(n, r)
	if why == "" && d.accepted != r {
		why = "another device has its name; with instanceNameDigits 12 in the Configuration devices hardly ever meet"
	}
	if why == "" || d.config.owner == nil {
		return nil
	}
	return fmt.Errorf("node %s reports Instance %s, which is left out: %s", n.name, d.name, why)
}

// update is a change of what nodes report, until done.
type update struct {
	*Ledger
	// touched are the devices that change.
	touched map[*device]bool
	// unaccepted are those that have lost the report which counted. Which one counts next
	// is decided last.
	unaccepted map[*device]bool
}

func (l *Ledger) update() *update {
	return &update{Ledger: l, touched: map[*device]bool{}, unaccepted: map[*device]bool{}}
}

// renew says that a device is new to pods, or to those on a node: they could have none of its
// slots before.
func (d *device) renew() {
	d.offered = offer{}
	for _, s := range d.slots {
		s.access = access{}
	}
}

// leave records that the node does not report these any more.
func (u *update) leave(n *nodeRecord, reports []*report) {
	var left []*device
	for _, r := range reports {
		d := r.device
		if d.accepted != r || u.refuses(n, r) != "" {
			continue
		}
		d.reporters--
		if d.reporters == 0 {
			u.withdraw(d)
		} else if !d.config.discovers() {
			left = append(left, d)
		}
	}
	shift(n, left)
}

// join records that the node reports these as well.
func (u *update) join(n *nodeRecord, reports []*report) {
	var joined []*device
	for _, r := range reports {
		d, conf := r.device, r.device.config
		if u.unaccepted[d] || u.refuses(n, r) != "" {
			continue
		}
		if d.accepted == nil {
			d.accepted = r
		}
		if d.accepted != r {
			continue // another device has the name
		}
		d.reporters++
		d.capacity = conf.owner.Spec.Slots()
		switch {
		case !conf.discovers():
			joined = append(joined, d)
		case d.group == nil:
			u.reachedBySelected(d)
		default:
			continue // the node reaches it already
		}
		d.renew()
	}
	shift(n, joined)
}

// reachedBySelected has all nodes reach the device that spec.discovery selects. They are in
// one class, and all devices in one group.
func (u *update) reachedBySelected(d *device) {
	for _, g := range d.config.groups {
		d.put(g)
		return
	}
	for _, n := range u.nodes {
		if n.selected(d.config.owner) {
			shift(n, []*device{d})
		}
	}
}

// withdraw takes the device out of use: no report counts, until it is decided which one is next.
func (u *update) withdraw(d *device) {
	u.touched[d], u.unaccepted[d] = true, true
	d.remove()
	d.accepted, d.reporters, d.capacity = nil, 0, 0
}

// reread decides anew on all reports of the Configuration's devices.
func (u *update) reread(conf *configRecord) {
	for d := range conf.devices {
		u.withdraw(d)
	}
}

// choose finds the report that is to count of each of the devices of which there are several;
// nil where none does. Of shared ones it is the one that most nodes make, then the one in the
// oldest slice, and of local ones the latter. Whoever reads the same slices, in whatever order,
// chooses the same; controller/inventory has this rule, too. A node can find an id whose hash is
// another device's: a shared one that only it reports takes no node's own device, and none that
// several nodes share, and so does a local one.
func (l *Ledger) choose(devices map[*device]bool) map[*device]*report {
	found := map[*device][]*report{} // those that may count, as they come in the slices, the oldest first
	for d := range devices {
		if d.reports != nil && d.reports.next != nil {
			found[d] = nil
		}
	}
	if len(found) == 0 {
		return nil
	}
	oldestFirst := slices.SortedFunc(maps.Values(l.slices), func(a, b *sliceRecord) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	nodes := map[*report]map[*nodeRecord]bool{}
	for _, s := range oldestFirst {
		for _, r := range s.reports {
			if _, several := found[r.device]; !several || l.refuses(s.node, r) != "" {
				continue
			}
			if nodes[r] == nil {
				nodes[r] = map[*nodeRecord]bool{}
				found[r.device] = append(found[r.device], r)
			}
			nodes[r][s.node] = true
		}
	}
	chosen := map[*device]*report{}
	for d, reports := range found {
		var local, shared *report
		for _, r := range reports {
			switch {
			case r.shared && len(nodes[r]) > len(nodes[shared]):
				shared = r
			case !r.shared && local == nil:
				local = r
			}
		}
		if chosen[d] = shared; local != nil && len(nodes[shared]) < 2 {
			chosen[d] = local
		}
	}
	return chosen
}

// done ends the update.
func (u *update) done() Event {
	for d := range u.touched {
		d.forgetReports()
	}
	for d, r := range u.choose(u.touched) {
		if d.accepted != r {
			u.withdraw(d)
			d.accepted = r
		}
	}
	unaccepted := u.unaccepted
	u.unaccepted = nil
	maps.DeleteFunc(unaccepted, func(d *device, _ bool) bool { return d.reports == nil })
	if len(unaccepted) > 0 {
		for _, name := range slices.Sorted(maps.Keys(u.nodes)) {
			n := u.nodes[name]
			u.join(n, n.all(func(d *device) bool { return unaccepted[d] }))
		}
	}
	return u.settle()
}

// notCounted is how many nodes' reports of the device do not count, although its
// Configuration is known.
func (d *device) notCounted() int {
	if d.config == nil || d.config.owner == nil {
		return 0
	}
	n := -d.reporters
	for r := d.reports; r != nil; r = r.next {
		n += int(r.nodes)
	}
	return n
}

// forgetReports drops those that no slice lists any more.
func (d *device) forgetReports() {
	for at := &d.reports; *at != nil; {
		if (*at).slices == 0 && len((*at).keptBy) == 0 {
			*at = (*at).next
		} else {
			at = &(*at).next
		}
	}
}

// settle recomputes the slots of the devices that have changed.
func (u *update) settle() Event {
	var event Event
	for d := range u.touched {
		before := d.supply()
		for _, s := range d.slots {
			u.count(d, s, &event)
		}
		d.changed(before)
	}
	for d := range u.touched {
		u.endUnreachable(d, &event)
	}
	for d := range u.touched {
		event.freed(d)
		u.totals.leftOut -= d.leftOut
		d.leftOut = d.notCounted()
		u.totals.leftOut += d.leftOut
		u.dropDevice(d)
	}
	return event
}
