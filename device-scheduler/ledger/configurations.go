package ledger

import (
	"maps"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// SetConfiguration adds or updates a Configuration, which is not to be changed
// afterwards.
func (l *Ledger) SetConfiguration(c *akriv0.Configuration) Event {
	conf := l.config(c.Name)
	conf.configurations[c.Namespace] = c
	return l.chooseOwner(conf)
}

// DeleteConfiguration removes a Configuration. Its Instances give no slots until
// it is back; slots that pods hold stay held.
func (l *Ledger) DeleteConfiguration(namespace, name string) Event {
	conf := l.configs[name]
	if conf == nil {
		return Event{}
	}
	delete(conf.configurations, namespace)
	return l.chooseOwner(conf)
}

// Configuration returns the Configuration that a resource name asks for, or that of
// the Instance which it names; nil when there is none. It is not to be changed.
func (l *Ledger) Configuration(resource string) *akriv0.Configuration {
	if conf, _ := l.resource(resource); conf != nil {
		return conf.owner
	}
	return nil
}

// oldest is the view of all Configurations that says who has a name.
func (l *Ledger) oldest(name string) *akriv0.Configuration {
	conf := l.configs[name]
	if conf == nil {
		return nil
	}
	var oldest *akriv0.Configuration
	for _, c := range conf.configurations {
		if c.MayOwnName() && akriv0.CompareOwners(c, oldest) < 0 {
			oldest = c
		}
	}
	return oldest
}

// chooseOwner finds the Configuration that owns the name, and puts into force what it says.
func (l *Ledger) chooseOwner(conf *configRecord) Event {
	before := conf.owner
	conf.owner = akriv0.Oldest(l.oldest).InForce(conf.name)
	now := conf.owner
	var event Event
	switch {
	case before == nil && now == nil:
	case before == nil || now == nil || before.Namespace != now.Namespace || !sameReach(&before.Spec, &now.Spec):
		u := l.update()
		for d := range conf.devices { // all reports are decided on anew
			u.withdraw(d)
		}
		if d := l.devices[conf.name]; d != nil && d.config != nil { // an Instance of the name
			u.withdraw(d)
		}
		event = u.done()
		if now != nil {
			event.Freed = append(event.Freed, conf.names()...)
		}
	default:
		u := l.update()
		resized, scoped := before.Spec.Slots() != now.Spec.Slots(), before.Spec.Unique() != now.Spec.Unique()
		if scoped {
			event.Freed = conf.names()
		}
		if resized || scoped || before.GivesSlots() != now.GivesSlots() {
			for d := range conf.devices {
				u.touched[d] = true // claims on what is left of a device may count
				if resized && d.exists() {
					d.resize(now.Spec.Slots())
				}
				if scoped {
					d.renew() // it serves more pods than before, or fewer
				}
			}
		}
		event.add(u.settle())
	}
	event.Owners = append(event.Owners, conf.name)
	for _, other := range l.configs { // those whose name may be that of an Instance of this one
		if akriv0.MayNameInstanceOf(conf.name, other.name) && len(other.configurations) > 0 {
			event.add(l.chooseOwner(other))
		}
	}
	l.dropConfig(conf)
	return event
}

// names are the resources that the Configuration in force serves.
func (conf *configRecord) names() []string {
	names := []string{conf.name}
	for d := range conf.devices {
		if d.exists() {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	return names
}

// sameReach reports whether reports count for both specifications alike.
func sameReach(a, b *akriv0.ConfigurationSpec) bool {
	if a.HashDigits() != b.HashDigits() || (a.Discovery == nil) != (b.Discovery == nil) {
		return false
	}
	return a.Discovery == nil || maps.Equal(a.Discovery.NodeSelector, b.Discovery.NodeSelector)
}
