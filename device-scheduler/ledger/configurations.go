package ledger

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// SetConfiguration adds or updates a Configuration, which is not to be changed
// afterwards.
func (l *Ledger) SetConfiguration(c *akriv0.Configuration) Event {
	k := l.kind(c.Name)
	k.configurations[c.Namespace] = c
	return l.elect(k)
}

// DeleteConfiguration removes a Configuration. Its Instances give no slots until
// it is back; slots that pods hold stay held.
func (l *Ledger) DeleteConfiguration(namespace, name string) Event {
	k := l.kinds[name]
	if k == nil {
		return Event{}
	}
	delete(k.configurations, namespace)
	return l.elect(k)
}

// Configuration returns the Configuration that a resource name asks for, or that of
// the Instance which it names; nil when there is none. It is not to be changed.
func (l *Ledger) Configuration(resource string) *akriv0.Configuration {
	if k := l.kindOf(resource); k != nil {
		return k.owner
	}
	return nil
}

// oldest is the view of all Configurations that says who has a name.
func (l *Ledger) oldest(name string) *akriv0.Configuration {
	k := l.kinds[name]
	if k == nil {
		return nil
	}
	var oldest *akriv0.Configuration
	for _, c := range k.configurations {
		if c.MayOwnName() && akriv0.CompareOwners(c, oldest) < 0 {
			oldest = c
		}
	}
	return oldest
}

// elect finds the Configuration that owns the name, and puts into force what it says.
func (l *Ledger) elect(k *kind) Event {
	before := k.owner
	k.owner = akriv0.Oldest(l.oldest).InForce(k.name)
	k.version++
	now := k.owner
	var event Event
	switch {
	case before == nil && now == nil:
	case before == nil || now == nil || before.Namespace != now.Namespace || !sameReach(&before.Spec, &now.Spec):
		u := l.update()
		u.reread(k)
		if d := l.devices[k.name]; d != nil && d.kind != nil { // an Instance of the name
			u.withdraw(d)
			u.orphans[d] = true
		}
		event = u.done()
		if now != nil {
			event.Freed = append(event.Freed, k.names()...)
		}
	default:
		if before.Spec.Slots() != now.Spec.Slots() {
			event = l.resize(k)
		}
		if before.Spec.Unique() != now.Spec.Unique() {
			event.Freed = append(event.Freed, k.names()...)
			for d := range k.devices {
				event.open(l, d, 0, math.MaxInt32) // it serves more pods than before, or fewer
			}
		}
	}
	for _, other := range l.kinds { // those whose name may be that of an Instance of this one
		if akriv0.MayNameInstanceOf(k.name, other.name) && len(other.configurations) > 0 {
			event.add(l.elect(other))
		}
	}
	l.dropKind(k)
	return event
}

// sameReach reports whether reports count for both specifications alike.
func sameReach(a, b *akriv0.ConfigurationSpec) bool {
	if a.HashDigits() != b.HashDigits() || (a.Discovery == nil) != (b.Discovery == nil) {
		return false
	}
	return a.Discovery == nil || maps.Equal(a.Discovery.NodeSelector, b.Discovery.NodeSelector)
}

// resize gives the kind's devices the capacity that its owner says.
func (l *Ledger) resize(k *kind) Event {
	fresh := map[*device]int{}
	for d := range k.devices {
		if d.exists() {
			fresh[d] = d.capacity
			d.resize(k.owner.Spec.Slots())
		}
	}
	return l.settle(fresh)
}

func (l *Ledger) kind(name string) *kind {
	k := l.kinds[name]
	if k == nil {
		k = &kind{name: strings.Clone(name), configurations: map[string]*akriv0.Configuration{}, devices: map[*device]struct{}{},
			groups: map[setKey]*group{}, byNode: map[string]reach{}, spare: btree.NewFreeListG[*device](btree.DefaultFreeListSize)}
		l.kinds[k.name] = k
	}
	return k
}

func (l *Ledger) dropKind(k *kind) {
	if len(k.configurations) == 0 && len(k.devices) == 0 {
		delete(l.kinds, k.name)
	}
}

// names are the resources that the Configuration in force serves.
func (k *kind) names() []string {
	names := []string{k.name}
	for d := range k.devices {
		if d.exists() {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	return names
}

// unique is the scope of the Configuration in force, "" when slots alone count.
func (k *kind) unique() akriv0.UniqueScope {
	if k.owner == nil {
		return ""
	}
	return k.owner.Spec.Unique()
}

// ownerName is namespace/name of the Configuration in force, "" when there is none.
func (k *kind) ownerName() string {
	if k.owner == nil {
		return ""
	}
	return k.owner.Namespace + "/" + k.owner.Name
}
