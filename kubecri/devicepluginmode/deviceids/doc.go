// Package deviceids says which device ids a device plugin of the kubelet lists, how
// healthy they are, which of them the kubelet should take for a container, and which
// slot an id stands for. All of it is functions of values: no clock, no I/O.
//
// The kubelet knows a resource as a set of ids, and gives ids to containers. Which ids
// there are follows the Configuration's uniqueDevices and uniqueScope:
//
//	resource                  uniqueDevices, uniqueScope   ids
//	akri.sh/<instance>        any                          the Instance's slots
//	akri.sh/<configuration>   false                        the slots of all Instances
//	akri.sh/<configuration>   true, Node                   the Instances
//	akri.sh/<configuration>   true, Container              <configuration>-<k>: those in use,
//	                                                       and one for each Instance with a free slot
//
// The first three are Akri's "resource sharing between CL and IL device plugins" (seed
// 001 and 002), the last its "dynamic virtual device ids" (seed 000).
//
// An id that a pod of this node holds is listed as Healthy, whatever has become of its
// Instance: a kubelet that restarts fails the pods of ids that are not (pkg/kubelet/cm/
// devicemanager, devicesToAllocate).
package deviceids

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Device is an id that is sent to the kubelet.
type Device struct {
	ID      string
	Healthy bool
}

// Grant is the slot that an id stands for.
type Grant struct {
	ID   string
	Slot slot.Name
	// Held says that the node holds the slot by this id already.
	Held bool
	// Former is the slot that the id stood for until now, to be released before the other is
	// claimed; nil for none.
	Former *slot.Name
}

// Resource is what one device plugin serves: a Configuration, with the Instances that concern this node, or
// one of its Instances.
type Resource struct {
	Name string // the Configuration's, or the Instance's
	// Level is that of claims for the ids.
	Level v1alpha1.Level
	// Unique is the scope within which an Instance's slots are given once; "" when slots
	// alone count, as those of one Instance do. Scope Pod is not known to this package.
	Unique    v0.UniqueScope
	Instances []*Instance // by name

	places map[string]place // of ids that this node holds; made by held
}

// kind is what has the resource's name.
func (r *Resource) kind() string {
	if r.Level == v1alpha1.InstanceLevel {
		return "Instance"
	}
	return "Configuration"
}

// place is where an id is held.
type place struct {
	instance *Instance
	slot     slot.Name
	inUse    bool
}

// Instance is a device that this node sees, or holds slots of.
type Instance struct {
	Name     string
	Capacity int // number of slots
	// Usable is true when the node sees the device and gives out slots of it.
	Usable bool
	// Holds are the slots that this node holds, by index.
	Holds []Hold
	// Others are the slots that others hold, or that are not to be had for another
	// reason, which is said: "claimed by …".
	Others map[int]string
}

// Hold is a slot that this node holds.
type Hold struct {
	Index int
	ID    string // of the kubelet's device
	Level v1alpha1.Level
	InUse bool // a container has it that has not exited, or a pod that the kubelet knows
}

func (in *Instance) slot(index int) slot.Name { return slot.Name{Instance: in.Name, Index: index} }

// free reports whether the slot can be claimed.
func (in *Instance) free(index int) bool { return in.taken(index) == "" }

// taken says why the slot cannot be claimed; "" when it can.
func (in *Instance) taken(index int) string {
	if why, ok := in.Others[index]; ok {
		return why
	}
	for _, h := range in.Holds {
		if h.Index == index {
			return fmt.Sprintf("in use on this node as %s device %s", h.Level, h.ID)
		}
	}
	switch {
	case !in.Usable:
		return "of a device that this node does not see, or whose discovery handler does not answer"
	case index < 0 || index >= in.Capacity:
		return fmt.Sprintf("beyond the capacity, which is %d", in.Capacity)
	}
	return ""
}

// freeSlots counts the slots that can be claimed.
func (in *Instance) freeSlots() int {
	if !in.Usable {
		return 0
	}
	n := in.Capacity
	for index := range in.Others {
		if index < in.Capacity {
			n--
		}
	}
	for _, h := range in.Holds {
		if _, other := in.Others[h.Index]; !other && h.Index < in.Capacity {
			n--
		}
	}
	return max(n, 0)
}

// highest returns the free slot of the highest index, false for none: device plugins of
// Instances take the lowest, so the two seldom meet.
func (in *Instance) highest() (slot.Name, bool) {
	if in.Usable {
		for index := in.Capacity - 1; index >= 0; index-- {
			if in.free(index) {
				return in.slot(index), true
			}
		}
	}
	return slot.Name{}, false
}

// held returns the slot that this node holds by the id, and its Instance.
func (r *Resource) held(id string) (*Instance, slot.Name, bool) {
	if r.places == nil {
		r.places = map[string]place{}
		for _, in := range r.Instances {
			for _, h := range in.Holds {
				if h.Level != r.Level {
					continue
				}
				p, before := r.places[h.ID]
				if !before {
					p = place{instance: in, slot: in.slot(h.Index)}
				}
				p.inUse = p.inUse || h.InUse
				r.places[h.ID] = p
			}
		}
	}
	p, ok := r.places[id]
	return p.instance, p.slot, ok
}

// inUse returns an error for an id that is in use. The kubelet gives out again what a pod has that was deleted by
// force, while its containers run (kubernetes/kubernetes#104824), and what it is giving to one pod while its
// pod-resources are read and another pod ends (UpdateAllocatedDevices).
func (r *Resource) inUse(id string) error {
	if _, name, ok := r.held(id); ok && r.places[id].inUse {
		return fmt.Errorf("device %q is in use: another pod has it, or was deleted by force and a container of it "+
			"with slot %s has not ended; create the pod again", id, name)
	}
	return nil
}

func (r *Resource) instance(name string) *Instance {
	i, ok := slices.BinarySearchFunc(r.Instances, name,
		func(in *Instance, name string) int { return strings.Compare(in.Name, name) })
	if !ok {
		return nil
	}
	return r.Instances[i]
}
