package deviceslices

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// DiscoveryLabel is on slices with the devices of a Configuration with
// spec.discovery, whose name it says: other nodes read those slices. They have no
// other devices. The Leases by which nodes agree who discovers have it too.
//
// Label of DeviceSlices and Leases. Written by kubecri. Read by kubecri, and the chart's Job that uninstalls.
const DiscoveryLabel = "kubeslot.io/discovery"

// maxNodeInName is how much of the node's name is in a slice's.
const maxNodeInName = 245

// view is all that plan goes by.
type view struct {
	node   string
	owner  metav1.OwnerReference
	slices []*v1alpha1.DeviceSlice // the node's
	State
	// decided are the problems to write, instead of Problems and those that plan adds. Nil for these.
	decided []v1alpha1.Problem
	// taken are names of slices that belong to other nodes.
	taken map[string]bool
}

// Known is what is known of one Configuration's devices. The zero value is that
// nothing is known yet, so that its devices stay as they are.
type Known struct {
	Label string // DiscoveryLabel of its slices, "" for none
	// MaxDevices is how many the Configuration may have, by which it gets room for bursts.
	MaxDevices int
	reports.Standing
}

// change is a slice to be created, when it has no resourceVersion, or updated, or
// deleted.
type change struct {
	slice  *v1alpha1.DeviceSlice
	delete bool
	bytes  int // about what is written, as JSON
}

// draft is a slice that is being planned.
type draft struct {
	was     *v1alpha1.DeviceSlice // nil for a new one
	name    string
	label   string
	devices []v1alpha1.Device
	bytes   int // of the devices, as JSON; 0 when not counted
	changed bool
	added   bool // it gets a device that it did not have
	moved   bool // it had a device that goes to another slice
}

type deviceKey struct {
	configuration v1alpha1.ConfigurationReference
	hash          string
}

// plan returns what makes the node's slices say what is known. A device stays in the
// slice where it is, so that a change of one device is a write of one slice. What is
// in first must be written before what is in then, so that no device that moves is
// missing in between. Pure: nothing but the view counts, and it is not changed.
func plan(v *view) (first, then []change) {
	drafts, placed := v.keep()
	reported := slices.Clone(v.Problems)
	for _, ref := range slices.SortedFunc(maps.Keys(v.Known), func(a, b v1alpha1.ConfigurationReference) int {
		return cmp.Compare(a.String(), b.String())
	}) {
		if out := v.add(&drafts, ref, v.Known[ref], placed); out > 0 {
			reported = append(reported, v1alpha1.Problem{Configuration: &ref, Reason: "TooManyDevices", Message: fmt.Sprintf(
				"%d devices are left out: a node reports at most %d DeviceSlices of %d devices or %d KiB each; have discovery find fewer, or report fewer properties of each",
				out, v1alpha1.MaxSlices, v1alpha1.MaxDevices, v1alpha1.MaxSliceBytes>>10)})
		}
	}
	// The problems are in the first slice without label, which stays when it is empty.
	var main *draft
	for _, d := range drafts {
		if d.label == "" && (main == nil || compareNames(d.name, main.name) < 0) {
			main = d
		}
	}
	if main == nil && (v.Complete || len(reported) > 0) {
		main = v.draft(&drafts, "")
	}
	for _, d := range drafts {
		var problems []v1alpha1.Problem
		switch {
		case d == main && v.decided != nil:
			problems = v.decided
		case d == main:
			problems = tidy(reported)
		}
		switch {
		case len(d.devices) == 0 && d != main:
			then = append(then, change{slice: d.was, delete: true})
		case d.was == nil || d.added:
			first = append(first, change{slice: v.slice(d, problems), bytes: v.size(d) + size(problems)})
		case d.changed || !apiequality.Semantic.DeepEqual(d.was.Spec.Problems, problems) || !v.owns(d.was):
			then = append(then, change{slice: v.slice(d, problems), bytes: v.size(d) + size(problems)})
		}
	}
	for _, s := range v.slices { // made by hand
		if s.DeletionTimestamp == nil && !v.isName(s.Name) {
			then = append(then, change{slice: s, delete: true})
		}
	}
	return first, then
}

// keep returns drafts of the slices there are, with the devices that stay, and what
// these are.
func (v *view) keep() (drafts []*draft, placed map[deviceKey]bool) {
	placed = map[deviceKey]bool{}
	for _, s := range slices.SortedFunc(slices.Values(v.slices), func(a, b *v1alpha1.DeviceSlice) int {
		return compareNames(a.Name, b.Name)
	}) {
		if s.DeletionTimestamp != nil || !v.isName(s.Name) {
			continue
		}
		d := &draft{was: s, name: s.Name, label: s.Labels[DiscoveryLabel]}
		d.devices = make([]v1alpha1.Device, 0, len(s.Spec.Devices))
		drafts = append(drafts, d)
		var changed []int // devices that may need more room now
		for _, device := range s.Spec.Devices {
			key := deviceKey{device.Configuration, device.Hash}
			k, stays := v.Known[key.configuration]
			f, seen := k.Devices[key.hash]
			switch {
			case placed[key]: // in two slices since it moved
				d.changed = true
				continue
			case !stays, !seen && k.Age(key.hash, device.Shared) == reports.Withdrawn:
				if !v.keeps(d, &device) {
					d.changed = true
					continue
				}
				if !device.Gone {
					device.Unschedulable, device.Gone, d.changed, d.bytes = true, true, true, 0
				}
			case seen && k.Label != d.label:
				d.changed, d.moved = true, true
				continue
			case seen && !f.Is(&device):
				device, d.changed = f.InSlice(key.configuration), true
				changed = append(changed, len(d.devices))
			case !seen && k.Age(key.hash, device.Shared) == reports.Unschedulable && !device.Unschedulable:
				device.Unschedulable, d.changed, d.bytes = true, true, 0
			}
			d.devices = append(d.devices, device)
			placed[key] = true
		}
		for len(changed) > 0 && v.size(d) > v1alpha1.MaxSliceBytes {
			last := changed[len(changed)-1]
			delete(placed, deviceKey{d.devices[last].Configuration, d.devices[last].Hash})
			d.devices = slices.Delete(d.devices, last, last+1)
			changed, d.bytes, d.moved = changed[:len(changed)-1], 0, true
		}
	}
	return drafts, placed
}

// keeps reports whether a device that the node does not see stays listed, as gone: claims
// of its slots count while it is. With spec.discovery other nodes list it.
func (v *view) keeps(d *draft, device *v1alpha1.Device) bool {
	return d.label == "" && v.Holds != nil && v.Holds(device.Instance())
}

// add puts the Configuration's devices that are in no slice into the first ones that
// have room, or into new ones. A slice that a device leaves in this pass takes none:
// of two slices that give each other a device, one would have to be written first.
// It returns how many devices are left out, since the node has as many slices as it may;
// one of them is kept for problems.
func (v *view) add(drafts *[]*draft, ref v1alpha1.ConfigurationReference, k Known, placed map[deviceKey]bool) (out int) {
	var missing []reports.Device
	for hash, f := range k.Devices {
		if !placed[deviceKey{ref, hash}] {
			missing = append(missing, f)
		}
	}
	slices.SortFunc(missing, func(a, b reports.Device) int { return cmp.Compare(a.ID, b.ID) })
	for i := range missing {
		f := &missing[i]
		at := slices.IndexFunc(*drafts, func(d *draft) bool {
			return d.label == k.Label && !d.moved && len(d.devices) < v1alpha1.MaxDevices && v.size(d)+f.Size <= v1alpha1.MaxSliceBytes
		})
		var d *draft
		switch {
		case at >= 0:
			d = (*drafts)[at]
		case len(*drafts) >= v1alpha1.MaxSlices-1:
			out++
			continue
		default:
			d = v.draft(drafts, k.Label)
		}
		d.bytes = v.size(d) + f.Size
		d.devices = append(d.devices, f.InSlice(ref))
		d.changed, d.added = true, true
	}
	return out
}

// draft adds a draft of a new slice.
func (v *view) draft(drafts *[]*draft, label string) *draft {
	has := func(name string) bool {
		return v.taken[name] ||
			slices.ContainsFunc(v.slices, func(s *v1alpha1.DeviceSlice) bool { return s.Name == name }) ||
			slices.ContainsFunc(*drafts, func(d *draft) bool { return d.name == name })
	}
	d := &draft{label: label}
	for n := 0; d.name == "" || has(d.name); n++ {
		d.name = Name(v.node, n)
	}
	*drafts = append(*drafts, d)
	return d
}

// slice is the draft as an object.
func (v *view) slice(d *draft, problems []v1alpha1.Problem) *v1alpha1.DeviceSlice {
	s := &v1alpha1.DeviceSlice{}
	if d.was != nil {
		s.ObjectMeta = *d.was.ObjectMeta.DeepCopy()
	} else if s.Name = d.name; d.label != "" {
		s.Labels = map[string]string{DiscoveryLabel: d.label}
	}
	s.OwnerReferences = []metav1.OwnerReference{v.owner}
	s.Spec = v1alpha1.DeviceSliceSpec{NodeName: v.node, Devices: d.devices, Problems: problems}
	return s
}

// size counts what the draft's devices take.
func (v *view) size(d *draft) int {
	if d.bytes == 0 {
		for i := range d.devices {
			if f, ok := v.Known[d.devices[i].Configuration].Devices[d.devices[i].Hash]; ok {
				d.bytes += f.Size
			} else {
				d.bytes += reports.Size(d.devices[i])
			}
		}
	}
	return d.bytes
}

// size counts what the problems take.
func size(problems []v1alpha1.Problem) int {
	text, _ := json.Marshal(problems) // strings alone cannot fail
	return len(text)
}

func (v *view) owns(s *v1alpha1.DeviceSlice) bool {
	return len(s.OwnerReferences) == 1 && apiequality.Semantic.DeepEqual(s.OwnerReferences[0], v.owner)
}

func prefix(node string) string { return node[:min(len(node), maxNodeInName)] + "-" }

// Name is that of a node's slice; n is 0 to v1alpha1.MaxSlices-1. A node that has one slice
// mostly has the first.
func Name(node string, n int) string { return prefix(node) + strconv.Itoa(n) }

// suffix is what deploy/policies/kubecri.yaml lets follow the prefix: MaxSlices numbers.
var suffix = regexp.MustCompile(`^(0|[1-9][0-9]?)$`)

func (v *view) isName(name string) bool {
	rest, ok := strings.CutPrefix(name, prefix(v.node))
	return ok && suffix.MatchString(rest)
}

// compareNames orders slices of one node by their numbers.
func compareNames(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// compareProblems orders problems by their Configurations; those without come last.
func compareProblems(a, b v1alpha1.Problem) int {
	name := func(p *v1alpha1.Problem) string {
		if p.Configuration == nil {
			return "~" // after all names
		}
		return p.Configuration.String()
	}
	return cmp.Or(cmp.Compare(name(&a), name(&b)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
}

// tidy orders the problems and cuts what a slice would not take.
func tidy(problems []v1alpha1.Problem) []v1alpha1.Problem {
	all := slices.SortedFunc(slices.Values(problems), compareProblems)
	if more := len(all) - v1alpha1.MaxProblems; more > 0 {
		all = append(all[:v1alpha1.MaxProblems-1:v1alpha1.MaxProblems-1], v1alpha1.Problem{
			Reason: "MoreProblems", Message: fmt.Sprintf("%d more problems are in kubecri's log", more+1)})
	}
	for i := range all {
		text := strings.ToValidUTF8(all[i].Message, "?")
		all[i].Message = strings.ToValidUTF8(text[:min(len(text), v1alpha1.MaxMessageLength)], "") // not half a character
	}
	return all
}
