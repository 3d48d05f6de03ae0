package ledger

import (
	"math"
	"slices"
	"strings"

	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// SetConfiguration adds or updates a Configuration.
func (l *Ledger) SetConfiguration(c *akriv0.Configuration) Gain {
	k := l.kind(c.Name)
	o := k.owner(c.Namespace)
	changed := o.configuration == nil || o.configuration.Spec.Unique() != c.Spec.Unique()
	o.configuration = c
	k.version++
	active := k.active
	gain := l.elect(k)
	if changed && k.active == active && active == c.Namespace {
		gain = l.changedUniqueness(k)
	}
	return gain
}

// DeleteConfiguration removes a Configuration. Its Instances give no slots until
// it is back; slots that pods hold stay held.
func (l *Ledger) DeleteConfiguration(namespace, name string) Gain {
	k := l.kind(name)
	k.owner(namespace).configuration = nil
	return l.elect(k)
}

// SetInstance adds or updates an Instance: its nodes, capacity and claims. It keeps
// nothing of in.
func (l *Ledger) SetInstance(in *akriv0.Instance) Gain {
	var gain Gain
	r := l.instances[instanceKey{in.Namespace, in.Name}]
	if r != nil && (r.uid != string(in.UID) || r.kind.name != in.Spec.ConfigurationName) {
		// A watch may show a deletion and a new Instance as one update.
		gain = l.DeleteInstance(in)
		r = nil
	}
	if r == nil {
		k := l.kind(in.Spec.ConfigurationName)
		o := k.owner(in.Namespace)
		r = o.enter(k, in)
		l.instances[instanceKey{o.namespace, r.name}] = r
	}
	moved := r.update(in)
	if r.kind.active != r.owner.namespace {
		return gain
	}
	gain.add(l.applyInstance(r, moved))
	return gain
}

// DeleteInstance removes the Instance of that namespace and name. Slots that pods
// hold stay held, should it come back under its name. What is gained was kept for
// pods that cannot have it all any more.
func (l *Ledger) DeleteInstance(in *akriv0.Instance) Gain {
	key := instanceKey{in.Namespace, in.Name}
	r := l.instances[key]
	if r == nil {
		return Gain{}
	}
	delete(l.instances, key)
	r.owner.leave(r)
	var gain Gain
	if r.kind.active == in.Namespace {
		gain = l.withdraw(l.devices[in.Name], r.kind)
	}
	l.dropKind(r.kind)
	return gain
}

// elect finds the Configuration that owns the name, and re-reads the Instances
// when that is another one than before.
func (l *Ledger) elect(k *kind) Gain {
	var first *akriv0.Configuration
	for _, o := range k.owners {
		if o.configuration.MayOwnName() && (first == nil || akriv0.CompareOwners(o.configuration, first) < 0) {
			first = o.configuration
		}
	}
	best := ""
	if first != nil {
		best = first.Namespace
	}
	if best == k.active {
		l.dropKind(k)
		return Gain{}
	}
	var gain Gain
	if old := k.owners[k.active]; old != nil {
		for _, r := range old.instances {
			gain.add(l.withdraw(l.devices[r.name], k))
		}
	}
	k.active = best
	k.version++
	if best == "" {
		if d := l.devices[k.name]; d != nil && d.exists {
			gain.open(l, d, 0, math.MaxInt32) // an Instance of the name, for which it has stood
		}
		l.dropKind(k)
		return gain
	}
	gain.Free = append(gain.Free, k.names()...)
	for _, r := range k.owners[best].instances {
		gain.add(l.applyInstance(r, true))
	}
	return gain
}

// changedUniqueness is what pods may get when the same Instance serves more of them, or
// fewer, than before.
func (l *Ledger) changedUniqueness(k *kind) Gain {
	gain := Gain{Free: k.names()}
	for _, r := range k.owners[k.active].instances {
		if d := l.devices[r.name]; d != nil && d.kind == k {
			gain.open(l, d, 0, math.MaxInt32)
		}
	}
	return gain
}

// applyInstance has the device give slots as its Instance says. moved is false when
// nodes and capacity are as they were.
func (l *Ledger) applyInstance(r *record, moved bool) Gain {
	d, k := l.device(r.name), r.kind
	if d.exists && d.kind != k {
		// Another Configuration's Instance has the name; it keeps it.
		return Gain{}
	}
	before, newSlots := slices.Clone(d.free), d.capacity
	d.exists, d.kind = true, k
	if (moved || d.group == nil) && d.move(r.nodes, r.capacity) {
		newSlots = 0 // to nodes that did not reach it before
	}
	r.nodes = d.nodes
	claimed, claims := bitset{}, make([]string, len(d.slots))
	for i := range d.slots {
		if claims[i] = d.slots[i].claim; claims[i] != "" {
			claimed.set(i)
		}
		d.slots[i].claim = ""
	}
	for _, u := range r.usage {
		if u.claim != "" {
			d.grow(u.index + 1)
			// A value that does not parse is somebody's claim all the same.
			d.slots[u.index].claim = u.claim
		}
	}
	free := false
	for i := range d.slots {
		d.refresh(i)
		free = free || d.free.has(i) && !before.has(i) || claimed.has(i) && d.waitsForNominee(i)
	}
	gain := l.endVain(d)
	for i, before := range claims {
		// A holder that others had the claim of could not be preempted, and now can.
		if s := &d.slots[i]; len(s.holders) > 0 && before != s.claim && l.foreign(d, i, before) {
			if _, ok := l.price(d, i); ok {
				gain.held(d, i)
			}
		}
	}
	gain.open(l, d, newSlots, math.MaxInt32)
	if free {
		gain.free(d)
	}
	return gain
}

func sorted(nodes []string) []string {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// subset reports whether all of a are in b; both are sorted.
func subset(a, b []string) bool {
	for _, s := range a {
		if _, found := slices.BinarySearch(b, s); !found {
			return false
		}
	}
	return true
}

// withdraw takes a device's slots out of use and forgets it once nobody holds any.
func (l *Ledger) withdraw(d *device, k *kind) Gain {
	if d == nil || d.kind != k || !d.exists {
		return Gain{}
	}
	d.ungroup()
	d.exists, d.capacity, d.nodes = false, 0, nil
	for i := range d.slots {
		d.slots[i].claim = ""
		d.refresh(i)
	}
	gain := l.endVain(d)
	l.dropDevice(d)
	var next *record // that had the name too
	for _, other := range l.kinds {
		r := l.instances[instanceKey{other.active, d.name}]
		if other != k && r != nil && r.kind == other && (next == nil || r.kind.name < next.kind.name) {
			next = r
		}
	}
	if next != nil {
		gain.add(l.applyInstance(next, true))
	}
	return gain
}

func (d *device) grow(n int) {
	if n <= len(d.slots) {
		return
	}
	d.slots = append(d.slots, make([]slotState, n-len(d.slots))...)
	for i, s := range d.beyond {
		if i < n {
			d.slots[i] = *s
			delete(d.beyond, i)
		}
	}
}

// at returns what is known of slot i, nil when that is nothing.
func (d *device) at(i int) *slotState {
	if i < len(d.slots) {
		return &d.slots[i]
	}
	return d.beyond[i]
}

// known yields the slots of which at knows anything.
func (d *device) known(yield func(int, *slotState) bool) {
	for i := range d.slots {
		if !yield(i, &d.slots[i]) {
			return
		}
	}
	for i, s := range d.beyond {
		if !yield(i, s) {
			return
		}
	}
}

// fewSlots is more than most Instances have.
const fewSlots = 8

// know returns slot i for a pod to hold, also when the device does not have it: an
// Instance may be seen after the pod, or shrink, and an assignment may be forged. One
// that names the last slots of thousands of Instances must not cost memory for all
// slots before these.
func (d *device) know(i int) *slotState {
	if i < fewSlots {
		d.grow(i + 1)
	}
	s := d.at(i)
	if s == nil {
		if d.beyond == nil {
			d.beyond = map[int]*slotState{}
		}
		s = &slotState{}
		d.beyond[i] = s
	}
	return s
}

func (l *Ledger) device(name string) *device {
	d := l.devices[name]
	if d == nil {
		d = &device{name: strings.Clone(name)}
		l.devices[d.name] = d
	}
	return d
}

func (l *Ledger) dropDevice(d *device) {
	if d.exists {
		return
	}
	for _, s := range d.known {
		if len(s.holders) > 0 || s.nominee != "" {
			return
		}
	}
	delete(l.devices, d.name)
}

func (l *Ledger) kind(name string) *kind {
	k := l.kinds[name]
	if k == nil {
		k = &kind{name: strings.Clone(name), owners: map[string]*owner{}, groups: map[string]*group{}, byNode: map[string]reach{},
			spare: btree.NewFreeListG[*device](btree.DefaultFreeListSize)}
		l.kinds[k.name] = k
	}
	return k
}

func (l *Ledger) dropKind(k *kind) {
	for ns, o := range k.owners {
		if o.configuration == nil && len(o.instances) == 0 {
			delete(k.owners, ns)
		}
	}
	if len(k.owners) == 0 {
		delete(l.kinds, k.name)
	}
}

func (k *kind) owner(namespace string) *owner {
	o := k.owners[namespace]
	if o == nil {
		o = &owner{namespace: strings.Clone(namespace)}
		k.owners[o.namespace] = o
	}
	return o
}

// names are the resources that the Configuration in force serves.
func (k *kind) names() []string {
	names := []string{k.name}
	if o := k.owners[k.active]; o != nil {
		for _, r := range o.instances {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return names
}

// unique is the scope of the Configuration in force, "" when slots alone count.
func (k *kind) unique() akriv0.UniqueScope {
	if o := k.owners[k.active]; o != nil && o.configuration != nil {
		return o.configuration.Spec.Unique()
	}
	return ""
}
