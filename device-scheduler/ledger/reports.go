package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"unique"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// identity tells devices apart. Local ones of two nodes are two, though their ids be
// equal.
type identity struct {
	id, node string
	shared   bool
}

func identityOf(d *v1alpha1.Device, node string) identity {
	if d.Shared {
		return identity{id: d.ID, shared: true}
	}
	return identity{id: d.ID, node: node}
}

// report returns what the node says of the device.
func (l *Ledger) report(n *nodeRecord, of *v1alpha1.Device) *report {
	about := about{unique.Make(of.Configuration.Namespace), maphash.Comparable(l.seed, identityOf(of, n.name))}
	kept := of.Unschedulable || of.Gone
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
		if r := *at; r.about == about && r.kept == kept {
			return r
		}
	}
	*at = &report{about: about, shared: of.Shared, kept: kept, device: d}
	return *at
}

// leftOut returns an error if the node's report does not count, although it gives slots and its
// Configuration is known.
func (l *Ledger) leftOut(n *nodeRecord, r *report) error {
	d := r.device
	if r.kept {
		return nil
	}
	why := l.refuses(n, r)
	if why == nil && d.accepted != r {
		why = errors.New("another device has its name; " +
			"with instanceNameDigits 12 in the Configuration devices hardly ever meet")
	}
	if why == nil || d.config.owner == nil {
		return nil
	}
	return fmt.Errorf("node %s reports Instance %s, which is left out: %w", n.name, d.name, why)
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

// list enters a slice that lists the device.
func (r *report) list(s *sliceRecord) {
	at, _ := slices.BinarySearchFunc(r.listed, s, (*sliceRecord).compare)
	r.listed = slices.Insert(r.listed, at, s)
}

// unlist removes a slice that lists the device no longer.
func (r *report) unlist(s *sliceRecord) {
	at, _ := slices.BinarySearchFunc(r.listed, s, (*sliceRecord).compare)
	r.listed = slices.Delete(r.listed, at, at+1)
}

// compare orders slices: the oldest first.
func (s *sliceRecord) compare(o *sliceRecord) int {
	return cmp.Or(s.created.Compare(o.created), cmp.Compare(s.name, o.name))
}

// leave records that the node does not report these any more.
func (u *update) leave(n *nodeRecord, reports []*report) {
	var left []*device
	for _, r := range reports {
		d := r.device
		if d.accepted != r || u.refuses(n, r) != nil {
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
		if u.unaccepted[d] || u.refuses(n, r) != nil {
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

// choose returns the report of the device that is to count, nil when none may.
func (l *Ledger) choose(d *device) *report {
	var chosen *report
	var has v1alpha1.Contender
	for r := d.reports; r != nil; r = r.next {
		if c := l.contender(r); !r.kept && c.Nodes > 0 && (chosen == nil || c.Compare(has) < 0) {
			chosen, has = r, c
		}
	}
	return chosen
}

// contender is what the slices say that list the device, of no nodes when none of them counts.
func (l *Ledger) contender(r *report) v1alpha1.Contender {
	c, discovers := v1alpha1.Contender{Shared: r.shared}, r.device.config.discovers()
	nodes := map[*nodeRecord]struct{}{}
	for _, s := range r.listed {
		if l.refuses(s.node, r) == nil {
			if len(nodes) == 0 {
				c.Created, c.Slice, c.Index = s.created, s.name, slices.Index(s.reports, r)
			}
			nodes[s.node] = struct{}{}
		}
		if !discovers { // all count, or none
			break
		}
	}
	if c.Nodes = len(nodes); c.Nodes > 0 && !discovers {
		c.Nodes = int(r.nodes)
	}
	return c
}

// done ends the update.
func (u *update) done() Event {
	for d := range u.touched {
		u.forgetReports(d)
		if !u.unaccepted[d] && !d.contested() {
			continue
		}
		if r := u.choose(d); r != d.accepted {
			u.withdraw(d)
			d.accepted = r
		}
	}
	listers := map[*nodeRecord][]*report{}
	for d := range u.unaccepted {
		if d.accepted == nil {
			continue
		}
		for _, s := range d.accepted.listed {
			if of := listers[s.node]; len(of) == 0 || of[len(of)-1] != d.accepted { // a node may list it twice
				listers[s.node] = append(of, d.accepted)
			}
		}
	}
	u.unaccepted = nil
	for n, reports := range listers {
		u.join(n, reports)
	}
	return u.settle()
}

// contested reports whether nodes give slots of several devices under the name.
func (d *device) contested() bool {
	giving := 0
	for r := d.reports; r != nil; r = r.next {
		if !r.kept {
			giving++
		}
	}
	return giving > 1
}

// notCounted is how many nodes' reports of the device do not count, although its
// Configuration is known.
func (d *device) notCounted() int32 {
	if d.config == nil || d.config.owner == nil {
		return 0
	}
	n := -d.reporters
	for r := d.reports; r != nil; r = r.next {
		n += r.nodes
	}
	return n
}

// forgetReports drops those that no slice lists any more.
func (l *Ledger) forgetReports(d *device) {
	for at := &d.reports; *at != nil; {
		if len((*at).listed) == 0 {
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
		d.kept, d.withheld = u.discoveredKept(d), u.withholds(d)
		for _, s := range d.slots {
			u.count(d, s, &event)
		}
		if d.exists() {
			d.nfree = d.countFree()
		}
		d.changed(before)
	}
	for d := range u.touched {
		u.endUnreachable(d, &event)
	}
	for d := range u.touched {
		event.freed(d)
		u.totals.leftOut -= int(d.leftOut)
		d.leftOut = d.notCounted()
		u.totals.leftOut += int(d.leftOut)
		u.dropDevice(d)
	}
	return event
}
