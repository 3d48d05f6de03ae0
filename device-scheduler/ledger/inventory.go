package ledger

import (
	"slices"

	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Gain names what a waiting pod may now find more of: resource names without
// the akri.sh/ prefix, of Configurations and Instances.
type Gain []string

// SetConfiguration adds or updates a Configuration.
func (l *Ledger) SetConfiguration(c *akriv0.Configuration) Gain {
	k := l.kind(c.Name)
	o := k.owner(c.Namespace)
	changed := o.configuration == nil || o.configuration.Spec.Unique() != c.Spec.Unique()
	o.configuration = c
	k.version++
	gain := l.elect(k)
	if changed && len(gain) == 0 {
		gain = k.gain()
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

// SetInstance adds or updates an Instance: its nodes, capacity and claims.
func (l *Ledger) SetInstance(in *akriv0.Instance) Gain {
	var gain Gain
	if d := l.devices[in.Name]; d != nil && d.kind != nil && d.kind.name != in.Spec.ConfigurationName {
		// An informer may show a deletion and a new Instance as one update.
		if old := d.kind.owner(in.Namespace).instances[in.Name]; old != nil {
			gain = l.DeleteInstance(old)
		}
	}
	k := l.kind(in.Spec.ConfigurationName)
	k.owner(in.Namespace).instances[in.Name] = in
	if k.active != in.Namespace {
		return gain
	}
	return append(gain, l.applyInstance(k, in)...)
}

// DeleteInstance removes an Instance. Slots that pods hold stay held, should it
// come back under its name. What is gained was kept for pods that cannot have it all
// any more.
func (l *Ledger) DeleteInstance(in *akriv0.Instance) Gain {
	k := l.kind(in.Spec.ConfigurationName)
	delete(k.owner(in.Namespace).instances, in.Name)
	var gain Gain
	if k.active == in.Namespace {
		gain = l.withdraw(l.devices[in.Name], k)
	}
	l.dropKind(k)
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
		return nil
	}
	var gain Gain
	if old := k.owners[k.active]; old != nil {
		for name := range old.instances {
			gain = append(gain, l.withdraw(l.devices[name], k)...)
		}
	}
	k.active = best
	k.version++
	if best == "" {
		l.dropKind(k)
		return gain
	}
	gain = append(gain, k.gain()...)
	for _, in := range k.owners[best].instances {
		gain = append(gain, l.applyInstance(k, in)...)
	}
	return gain
}

func (l *Ledger) applyInstance(k *kind, in *akriv0.Instance) Gain {
	d := l.device(in.Name)
	if d.exists && d.kind != k {
		// Another Configuration's Instance has the name; it keeps it.
		return nil
	}
	before := slices.Clone(d.free)
	d.exists, d.kind = true, k
	wider := d.move(in.Spec.Nodes, int(in.Spec.Capacity))
	claimed, claims := bitset{}, make([]string, len(d.slots))
	for i := range d.slots {
		if claims[i] = d.slots[i].claim; claims[i] != "" {
			claimed.set(i)
		}
		d.slots[i].claim = ""
	}
	for name, value := range in.Spec.DeviceUsage {
		n, err := slot.Parse(name)
		if err != nil || n.Instance != in.Name || value == "" {
			continue // not a slot of this Instance, or free
		}
		d.grow(n.Index + 1)
		// A value that does not parse is somebody's claim all the same.
		d.slots[n.Index].claim = value
	}
	gained := false
	for i := range d.slots {
		d.refresh(i)
		gained = gained || d.free.has(i) && !before.has(i) || claimed.has(i) && d.waitsForNominee(i)
	}
	for i, before := range claims {
		s := &d.slots[i]
		// A holder that others had the claim of could not be preempted, and now can.
		gained = gained || len(s.holders) > 0 && before != s.claim && l.foreign(d, i, before) && !l.foreign(d, i, s.claim)
	}
	gain, vain := l.endVain(d)
	// A device that others hold can be preempted on nodes that reach it now.
	if gained || vain || wider && (d.nfree > 0 || d.held()) {
		gain = append(gain, k.name, d.name)
	}
	return gain
}

// foreign reports whether a claim on the held slot is none of its holders'.
func (l *Ledger) foreign(d *device, index int, claim string) bool {
	name := slot.Name{Instance: d.name, Index: index}
	return !slices.ContainsFunc(d.slots[index].holders, func(uid string) bool {
		p := l.pods[uid]
		return slices.ContainsFunc(p.holds, func(h hold) bool { return h.slot == name && p.owns(h, claim) })
	})
}

// held reports whether pods hold slots of the device.
func (d *device) held() bool {
	return slices.ContainsFunc(d.slots, func(s slotState) bool { return len(s.holders) > 0 })
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
		return nil
	}
	d.displace()
	d.exists, d.capacity, d.nodes = false, 0, nil
	for i := range d.slots {
		d.slots[i].claim = ""
		d.refresh(i)
	}
	gain, vain := l.endVain(d)
	if vain {
		gain = append(gain, k.name, d.name)
	}
	l.dropDevice(d)
	return gain
}

func (d *device) grow(n int) {
	for len(d.slots) < n {
		d.slots = append(d.slots, slotState{})
	}
}

func (l *Ledger) device(name string) *device {
	d := l.devices[name]
	if d == nil {
		d = &device{name: name, clOnNode: map[string]int{}}
		l.devices[name] = d
	}
	return d
}

func (l *Ledger) dropDevice(d *device) {
	if d.exists {
		return
	}
	for i := range d.slots {
		if len(d.slots[i].holders) > 0 || d.slots[i].nominee != "" {
			return
		}
	}
	delete(l.devices, d.name)
}

func (l *Ledger) kind(name string) *kind {
	k := l.kinds[name]
	if k == nil {
		k = &kind{name: name, owners: map[string]*owner{}, groups: map[string]*group{}, byNode: map[string]reach{},
			spare: btree.NewFreeListG[*device](btree.DefaultFreeListSize)}
		l.kinds[name] = k
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
		o = &owner{instances: map[string]*akriv0.Instance{}}
		k.owners[namespace] = o
	}
	return o
}

func (k *kind) gain() Gain {
	gain := Gain{k.name}
	if o := k.owners[k.active]; o != nil {
		for name := range o.instances {
			gain = append(gain, name)
		}
	}
	slices.Sort(gain)
	return gain
}

// unique is the scope of the Configuration in force, "" when slots alone count.
func (k *kind) unique() akriv0.UniqueScope {
	if o := k.owners[k.active]; o != nil && o.configuration != nil {
		return o.configuration.Spec.Unique()
	}
	return ""
}
