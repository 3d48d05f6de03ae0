package ledger

import (
	"slices"
	"strings"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Instance returns the Instance that slots are given from under the name, as last
// set: its identity and version, and what decisions need. It is nil when there is
// none. Its nodes are not to be changed.
func (l *Ledger) Instance(name string) *akriv0.Instance {
	d := l.devices[name]
	if d == nil || !d.exists {
		return nil
	}
	return l.instances[instanceKey{d.kind.active, name}].instance()
}

// Configuration returns the Configuration that a resource name asks for, or that of
// the Instance which it names; nil when there is none. It is not to be changed.
func (l *Ledger) Configuration(resource string) *akriv0.Configuration {
	k := l.kindOf(resource)
	if k == nil || k.owners[k.active] == nil {
		return nil
	}
	return k.owners[k.active].configuration
}

// Stray is claims on an Instance that were made for pods which do not use them.
type Stray struct {
	Instance *akriv0.Instance // see Ledger.Instance
	Claims   map[slot.Name]slot.Usage
}

// Strays finds the claims whose holder is a pod that waits to be bound and has
// been given no slots: a scheduler claimed them for it, and then could not bind it.
// Other claims without a holder may be of a pod or a device plugin that this ledger
// does not know. They are ordered by Instance.
func (l *Ledger) Strays(waits func(uid string) bool) []Stray {
	var strays []Stray
	for _, d := range l.devices {
		var claims map[slot.Name]slot.Usage
		for i := range d.slots {
			s := &d.slots[i]
			if s.claim == "" || len(s.holders) > 0 {
				continue
			}
			usage, err := slot.ParseUsage(s.claim)
			if err != nil || !usage.ConfigurationLevel() || l.pods[usage.Holder] != nil || !waits(usage.Holder) {
				continue
			}
			if claims == nil {
				claims = map[slot.Name]slot.Usage{}
			}
			claims[slot.Name{Instance: d.name, Index: i}] = usage
		}
		if in := l.Instance(d.name); claims != nil && in != nil {
			strays = append(strays, Stray{Instance: in, Claims: claims})
		}
	}
	slices.SortFunc(strays, func(a, b Stray) int { return strings.Compare(a.Instance.Name, b.Instance.Name) })
	return strays
}
