package deviceslices

import (
	"cmp"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// ofProblems is the hash of a Configuration's problems among its devices: they are paced as a device is.
const ofProblems = ""

// difference is a device, or a Configuration's problems, that changes would write otherwise than it is.
type difference struct {
	key deviceKey
	id  string // of the device
	// urgent is a change that does not wait: the device is gone, or not for new pods, or goes to
	// another slice as it is.
	urgent bool
	bytes  int          // of the device, about
	writes []sliceWrite // the slices that it will be in, and was in: one or two
}

// sliceWrite is a slice that is written for a difference.
type sliceWrite struct {
	name  string
	bytes int
}

// slice is the name of the one that the device will be in.
func (d *difference) slice() string { return d.writes[0].name }

// placedDevice is a device in a slice.
type placedDevice struct {
	*v1alpha1.Device
	slice string
}

// differences returns what the changes would write otherwise than it is, in the order of devices' ids.
func differences(written []*v1alpha1.DeviceSlice, changes []change) (all []difference) {
	sizes := map[string]int{}
	for _, c := range changes {
		sizes[c.slice.Name] = c.bytes
	}
	writes := func(names ...string) (all []sliceWrite) {
		for _, name := range slices.Compact(names) {
			all = append(all, sliceWrite{name, sizes[name]})
		}
		return all
	}
	planned := planned(written, changes)
	before, after := placed(written, sizes), placed(planned, sizes)
	for key, is := range after {
		d := difference{key: key, id: is.ID, bytes: textOf(is.Device), writes: writes(is.slice)}
		if was, ok := before[key]; ok {
			same := apiequality.Semantic.DeepEqual(was.Device, is.Device)
			if same && was.slice == is.slice {
				continue
			}
			d.urgent = same || is.Gone || is.Unschedulable && !was.Unschedulable
			d.writes = writes(is.slice, was.slice)
		}
		all = append(all, d)
	}
	for key, was := range before {
		if _, ok := after[key]; !ok {
			all = append(all, difference{key: key, id: was.ID, urgent: true, writes: writes(was.slice)})
		}
	}
	was, hadThem := problemsOf(written)
	is, hasThem := problemsOf(planned)
	for ref := range was {
		is[ref] = slices.Clip(is[ref]) // also those that have none any more
	}
	for ref := range is { // "" counts those that are not listed
		if ref.Name != "" && !apiequality.Semantic.DeepEqual(was[ref], is[ref]) {
			all = append(all, difference{key: deviceKey{ref, ofProblems}, writes: writes(cmp.Or(hasThem, hadThem))})
		}
	}
	slices.SortFunc(all, func(a, b difference) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.key.hash, b.key.hash))
	})
	return all
}

// textOf counts the text of a device.
func textOf(d *v1alpha1.Device) int {
	n := len(d.ID)
	for key, value := range d.Properties {
		n += len(key) + len(value)
	}
	return n
}

// planned are the slices once the changes are made.
func planned(written []*v1alpha1.DeviceSlice, changes []change) (all []*v1alpha1.DeviceSlice) {
	changed := map[string]bool{}
	for _, c := range changes {
		changed[c.slice.Name] = true
		if !c.delete {
			all = append(all, c.slice)
		}
	}
	for _, s := range written {
		if !changed[s.Name] {
			all = append(all, s)
		}
	}
	return all
}

// placed are the devices of the slices that change.
func placed(all []*v1alpha1.DeviceSlice, changed map[string]int) map[deviceKey]placedDevice {
	devices := map[deviceKey]placedDevice{}
	for _, s := range all {
		if _, ok := changed[s.Name]; !ok {
			continue
		}
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			devices[deviceKey{d.Configuration, d.Hash}] = placedDevice{d, s.Name}
		}
	}
	return devices
}

// problemsOf are the problems that slices have of each Configuration, of none by the zero reference, and the
// slice that has them.
func problemsOf(all []*v1alpha1.DeviceSlice) (of map[v1alpha1.ConfigurationReference][]v1alpha1.Problem, slice string) {
	of = map[v1alpha1.ConfigurationReference][]v1alpha1.Problem{}
	for _, s := range all {
		for _, p := range s.Spec.Problems {
			var ref v1alpha1.ConfigurationReference
			if p.Configuration != nil {
				ref = *p.Configuration
			}
			of[ref], slice = append(of[ref], p), s.Name
		}
	}
	return of, slice
}

// without is the view as if what is held had not changed, a device that appears were not there, and one that
// became another of the same hash were gone. All other problems are as the changes have them.
func (v *view) without(held map[deviceKey]bool, changes []change) *view {
	was, _ := problemsOf(v.slices)
	is, _ := problemsOf(planned(v.slices, changes))
	w := *v
	w.Known = maps.Clone(v.Known)
	devices := map[v1alpha1.ConfigurationReference]map[string]reports.Device{} // of those with some that are held
	for key := range held {
		ref := key.configuration
		if key.hash == ofProblems {
			is[ref] = was[ref]
			continue
		}
		if devices[ref] == nil {
			devices[ref] = maps.Clone(v.Known[ref].Devices)
		}
		delete(devices[ref], key.hash)
	}
	for _, s := range v.slices {
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			f, seen := v.Known[d.Configuration].Devices[d.Hash]
			if held[deviceKey{d.Configuration, d.Hash}] && seen && f.ID == d.ID && f.Shared == d.Shared && !d.Gone {
				devices[d.Configuration][d.Hash] = asWritten(d)
			}
		}
	}
	for ref, devices := range devices {
		k := w.Known[ref]
		k.Devices = devices
		w.Known[ref] = k
	}
	w.decided = append([]v1alpha1.Problem{}, slices.Concat(slices.Collect(maps.Values(is))...)...)
	slices.SortFunc(w.decided, compareProblems)
	w.decided = w.decided[:min(len(w.decided), v1alpha1.MaxProblems)]
	return &w
}

// asWritten is the device as a slice has it.
func asWritten(d *v1alpha1.Device) reports.Device {
	most := *d
	most.Unschedulable, most.Gone = true, true // as it may become
	return reports.Device{Device: discovery.Device{ID: d.ID, Properties: d.Properties}, Shared: d.Shared,
		Unschedulable: d.Unschedulable, Hash: d.Hash, Size: reports.Size(most)}
}
