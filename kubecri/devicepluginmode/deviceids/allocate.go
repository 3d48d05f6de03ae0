package deviceids

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Map returns the slot of each id of one container, in the ids' order, or why it cannot have them all.
func (r *Resource) Map(ids []string) ([]Grant, error) {
	for _, id := range ids {
		if err := r.inUse(id); err != nil {
			return nil, err
		}
	}
	if r.Unique == v0.UniquePerContainer {
		return r.mapDistinct(ids)
	}
	grants := make([]Grant, 0, len(ids))
	for _, id := range ids {
		if _, name, ok := r.held(id); ok {
			grants = append(grants, Grant{ID: id, Slot: name, Held: true})
			continue
		}
		name, err := r.slotOf(id)
		if err != nil {
			return nil, err
		}
		grants = append(grants, Grant{ID: id, Slot: name})
	}
	return grants, nil
}

// slotOf returns the free slot that an id stands for which this node does not hold.
func (r *Resource) slotOf(id string) (slot.Name, error) {
	if r.Unique == v0.UniquePerNode {
		in := r.instance(id)
		if in == nil {
			return slot.Name{}, fmt.Errorf("device %q is not an Instance of Configuration %s that this node knows", id,
				r.Name)
		}
		if in.heldByConfiguration() {
			return slot.Name{}, fmt.Errorf("this node has a slot of Instance %s already, and uniqueScope Node allows one", in.Name)
		}
		name, ok := in.highest()
		if !ok {
			return slot.Name{}, noneFree(in)
		}
		return name, nil
	}
	name, err := slot.Parse(id)
	if err != nil || r.Level == v1alpha1.InstanceLevel && name.Instance != r.Name {
		return slot.Name{}, fmt.Errorf("device %q is not a slot of %s %s", id, r.kind(), r.Name)
	}
	in := r.instance(name.Instance)
	if in == nil {
		return slot.Name{}, fmt.Errorf("slot %s is of a device that this node does not know", name)
	}
	if why := in.taken(name.Index); why != "" {
		return slot.Name{}, fmt.Errorf("slot %s is %s", name, why)
	}
	return name, nil
}

// mapDistinct gives each id a slot of an Instance of its own. The kubelet offers only ids
// that no pod has. So when two ids stand for slots of one Instance, what holds one of them
// is left over from a pod that is gone, and the id gets a slot of another Instance. (Akri
// refuses such a request.)
func (r *Resource) mapDistinct(ids []string) ([]Grant, error) {
	grants := make([]Grant, len(ids))
	used := map[string]bool{} // Instances
	var open []int            // places of ids that need a slot
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareIDs(ids[a], ids[b]) })
	for _, i := range order {
		grants[i].ID = ids[i]
		in, name, ok := r.held(ids[i])
		switch {
		case ok && !used[in.Name]:
			used[in.Name] = true
			grants[i].Slot, grants[i].Held = name, true
			continue
		case ok:
			grants[i].Former = &name
		case !r.dynamic(ids[i]):
			return nil, fmt.Errorf("device %q is not one of Configuration %s", ids[i], r.Name)
		}
		open = append(open, i)
	}
	for _, i := range open {
		in := r.mostFree(used)
		if in == nil {
			return nil, r.shortage(len(ids), len(used))
		}
		used[in.Name] = true
		grants[i].Slot, _ = in.highest()
	}
	return grants, nil
}

// dynamic reports whether the id is <configuration>-<k>.
func (r *Resource) dynamic(id string) bool {
	k, ok := strings.CutPrefix(id, r.Name+"-")
	if !ok {
		return false
	}
	n, err := strconv.Atoi(k)
	return err == nil && n >= 0 && strconv.Itoa(n) == k
}

// mostFree returns the Instance with the most free slots, the first by name of several;
// nil when none has any, but for those in used.
func (r *Resource) mostFree(used map[string]bool) *Instance {
	var best *Instance
	most := 0
	for _, in := range r.Instances {
		if n := in.freeSlots(); n > most && !used[in.Name] {
			best, most = in, n
		}
	}
	return best
}

// shortage says why a container cannot have slots of so many Instances.
func (r *Resource) shortage(want, have int) error {
	var full []string
	for _, in := range r.Instances {
		if in.known() && in.freeSlots() == 0 {
			full = append(full, noneFree(in).Error())
		}
	}
	err := fmt.Errorf("%d devices of Configuration %s are requested, and "+
		"slots of %d Instances can be given to one container (uniqueDevices)", want, r.Name, have)
	if len(full) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.Join(full[:min(len(full), maxReasons)], "; "))
	}
	return err
}

// maxReasons is how many Instances an error says the holders of.
const maxReasons = 3

// noneFree says who has an Instance's slots.
func noneFree(in *Instance) error {
	if !in.Usable {
		return fmt.Errorf("this node does not see the device of Instance %s, or its discovery handler does not answer", in.Name)
	}
	var why []string
	for index := range min(in.Capacity, maxReasons) {
		why = append(why, fmt.Sprintf("%s is %s", in.slot(index), in.taken(index)))
	}
	return fmt.Errorf("Instance %s has no free slot: %s", in.Name, strings.Join(why, ", "))
}
