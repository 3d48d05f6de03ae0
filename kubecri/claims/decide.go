package claims

import (
	"maps"
	"slices"
	"time"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// holder is a container that uses a slot.
type holder struct {
	usage     slot.Usage
	pod       Pod
	container string
}

// uses says how an Instance's slots are used on this node.
type uses struct {
	held  map[slot.Name][]holder // by created containers that can run, or run again
	busy  map[slot.Name]bool     // a container that uses it is being created
	freed map[slot.Name]bool     // the last container that used it is known to have gone
	// due is how the pods that are bound to the node are to hold the slots.
	due map[slot.Name][]slot.Usage
}

// orphan is a claim of this node without a container.
type orphan struct {
	slot  slot.Name
	value string
}

// loss is a slot that a container here uses and somebody else has claimed.
type loss struct {
	slot   slot.Name
	value  string
	holder holder
}

// decision is what is to be done about an Instance's claims.
type decision struct {
	edit    edit
	settled []slot.Name          // freed slots of which no claim is left, once edit is written
	orphans map[orphan]time.Time // claims without a container, and since when
	recheck time.Duration        // when the first of them is due; 0 for none
	lost    []loss
}

// edit is what to write in deviceUsage; nil removes the entry.
type edit map[string]*string

func (e edit) set(n slot.Name, u slot.Usage) {
	value := u.String()
	e[n.String()] = &value
}

// releases counts the entries that give a slot back.
func (e edit) releases() int {
	n := 0
	for _, value := range e {
		if value == nil || *value == "" {
			n++
		}
	}
	return n
}

// apply returns a copy of the Instance with the edit.
func (e edit) apply(in *akriv0.Instance) *akriv0.Instance {
	in = in.DeepCopy()
	if in.Spec.DeviceUsage == nil {
		in.Spec.DeviceUsage = make(map[string]string, len(e))
	}
	for name, value := range e {
		if value == nil {
			delete(in.Spec.DeviceUsage, name)
		} else {
			in.Spec.DeviceUsage[name] = *value
		}
	}
	return in
}

// decide compares an Instance's claims with its use on the node. A claim of the
// node without a container is released: at once when its container is known to
// have gone, and after grace otherwise, for it may be about to come: a create that
// another life of this process began, or a pod whose scheduler claims before it
// binds. While a pod here is due to use the slot, the claim stays. A container without a claim gets it back
// when the slot is free; owner is false for an Instance that only shares the name
// of the one that slots are given from, to which no claim is added.
func decide(in *akriv0.Instance, owner bool, node string, u uses, orphans map[orphan]time.Time, now time.Time, grace time.Duration) decision {
	d := decision{edit: edit{}, orphans: map[orphan]time.Time{}}
	claimed := map[slot.Name]bool{}
	for key, value := range in.Spec.DeviceUsage {
		name, err := slot.Parse(key)
		if err != nil || name.Instance != in.Name || value == "" {
			continue
		}
		claimed[name] = true
		if u.busy[name] {
			continue
		}
		held := u.held[name]
		usage, err := slot.ParseUsage(value)
		switch {
		case err != nil || usage.Node != node:
			if owner && len(held) > 0 {
				d.lost = append(d.lost, loss{slot: name, value: value, holder: held[0]})
			}
		case slices.ContainsFunc(held, func(h holder) bool { return h.usage == usage }):
		case owner && len(held) > 0: // of another pod here, or another form
			d.edit.set(name, held[0].usage)
		case u.freed[name]:
			d.release(in, name)
		case slices.Contains(u.due[name], usage):
			// Its scheduler claimed it; the containers are to come, however long an
			// image takes.
		default:
			d.orphan(in, orphan{name, value}, orphans, now, grace)
		}
	}
	for name, held := range u.held {
		if owner && !claimed[name] && !u.busy[name] && name.Index < int(in.Spec.Capacity) {
			d.edit.set(name, held[0].usage)
		}
	}
	for name := range u.freed {
		if !u.busy[name] && len(u.held[name]) == 0 {
			d.settled = append(d.settled, name)
		}
	}
	slices.SortFunc(d.lost, func(a, b loss) int { return compareSlots(a.slot, b.slot) })
	slices.SortFunc(d.settled, compareSlots)
	return d
}

func (d *decision) release(in *akriv0.Instance, name slot.Name) {
	if name.Index < int(in.Spec.Capacity) {
		d.edit.set(name, slot.Usage{})
		return
	}
	d.edit[name.String()] = nil // a slot of a larger capacity, of former times
}

func (d *decision) orphan(in *akriv0.Instance, o orphan, known map[orphan]time.Time, now time.Time, grace time.Duration) {
	since, ok := known[o]
	if !ok {
		since = now
	}
	left := grace - now.Sub(since)
	if left <= 0 {
		d.release(in, o.slot)
		return
	}
	d.orphans[o] = since
	if d.recheck == 0 || left < d.recheck {
		d.recheck = left
	}
}

// concerns reports whether the Instance has a claim of the node.
func concerns(in *akriv0.Instance, node string) bool {
	for value := range maps.Values(in.Spec.DeviceUsage) {
		if usage, err := slot.ParseUsage(value); err == nil && usage.Node == node && node != "" {
			return true
		}
	}
	return false
}
