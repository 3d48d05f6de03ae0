package deviceids

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// List returns the ids that are sent to the kubelet, in order. One that stands for a slot is Healthy when the
// slot is free, or when this node holds it by the id.
func (r *Resource) List() []Device {
	l := listing{}
	free := 0 // Instances with a free slot
	for _, in := range r.Instances {
		has := in.freeSlots() > 0
		if has {
			free++
		}
		switch {
		case !in.known():
		case r.Unique == v0.UniquePerNode:
			l.add(in.Name, has && !in.heldByConfiguration())
		case r.Unique == "":
			for index := range in.Capacity {
				l.add(in.slot(index).String(), in.free(index))
			}
		}
		l.addHeld(in, r.Level)
	}
	if r.Unique == v0.UniquePerContainer {
		for k := 0; free > 0; k++ {
			id := r.Name + "-" + strconv.Itoa(k)
			if _, used := l[id]; !used {
				l.add(id, true)
				free--
			}
		}
	}
	return l.sorted()
}

// known reports whether the node sees the device, as far as known. What it does not see
// is listed for those alone who hold it.
func (in *Instance) known() bool { return in.Capacity > 0 }

func (in *Instance) heldByConfiguration() bool {
	return slices.ContainsFunc(in.Holds, func(h Hold) bool { return h.Level == v1alpha1.ConfigurationLevel })
}

// listing is the health of ids.
type listing map[string]bool

func (l listing) add(id string, healthy bool) { l[id] = l[id] || healthy }

// addHeld adds the ids of slots that this node holds.
func (l listing) addHeld(in *Instance, level v1alpha1.Level) {
	for _, h := range in.Holds {
		if h.Level == level {
			l.add(h.ID, true)
		}
	}
}

func (l listing) sorted() []Device {
	all := make([]Device, 0, len(l))
	for id, healthy := range l {
		all = append(all, Device{id, healthy})
	}
	slices.SortFunc(all, func(a, b Device) int { return compareIDs(a.ID, b.ID) })
	return all
}

// compareIDs orders ids by their text and then by the number at their end.
func compareIDs(a, b string) int {
	aText, aNumber := splitNumber(a)
	bText, bNumber := splitNumber(b)
	return cmp.Or(cmp.Compare(aText, bText), cmp.Compare(aNumber, bNumber), cmp.Compare(a, b))
}

func splitNumber(id string) (text string, number int) {
	cut := strings.LastIndexByte(id, '-')
	n, err := strconv.Atoi(id[cut+1:])
	if err != nil {
		return id, -1
	}
	return id[:cut+1], n
}
