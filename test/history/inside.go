package history

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Inside is what a container has found in itself when it started.
type Inside struct {
	PodUID    string `json:"podUID"`
	Container string `json:"container"`
	// Devices are those in AKRI_DEVICES; nil for a container without the variable.
	Devices []InsideDevice `json:"devices"`
	// Mounted says that the devices' mount was there.
	Mounted bool `json:"mounted"`
}

// InsideDevice is one device of a container.
type InsideDevice struct {
	Slot string `json:"slot"`
	// ID is the device's, as one of its properties says it.
	ID string `json:"id"`
}

// CheckInside returns what containers had other than what their pods were assigned, in
// the same history: of shared devices, with a mount each. The order of the result is
// that of found.
func CheckInside(events []Event, found []Inside) []string {
	assigned := map[string]map[string][]assignment.Grant{} // by UID and container
	for _, e := range events {
		if p := e.Pod; p != nil && p.Spec.NodeName != "" {
			if held, err := assignment.Held(p); err == nil {
				assigned[string(p.UID)] = held
			}
		}
	}
	var wrong []string
	for _, in := range found {
		pod, known := assigned[in.PodUID]
		if !known {
			wrong = append(wrong, fmt.Sprintf("container %s ran of pod %q, which was never bound", in.Container, in.PodUID))
			continue
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, g := range pod[in.Container] {
			want[g.Slot.String()] = true
		}
		for _, d := range in.Devices {
			got[d.Slot] = true
			name, err := slot.Parse(d.Slot)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("container %s of pod %s has slot %q: %v", in.Container, in.PodUID, d.Slot, err))
				continue
			}
			if _, hash := slot.SplitInstance(name.Instance); hash != slot.InstanceHash(d.ID, true, "", slot.ShortHash) {
				wrong = append(wrong, fmt.Sprintf("container %s of pod %s has device %q for slot %s, which is of another", in.Container, in.PodUID, d.ID, d.Slot))
			}
		}
		if !maps.Equal(want, got) || len(in.Devices) != len(want) || in.Mounted != (len(want) > 0) {
			wrong = append(wrong, fmt.Sprintf("container %s of pod %s has the slots %v and mounted=%t, and was assigned %v",
				in.Container, in.PodUID, slices.Sorted(maps.Keys(got)), in.Mounted, slices.Sorted(maps.Keys(want))))
		}
	}
	return wrong
}
