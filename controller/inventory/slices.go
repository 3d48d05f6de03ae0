package inventory

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// SetSlice takes note of a slice as it is now. Only what it says differently of a
// device is a change.
func (v *Inventory) SetSlice(s *v1alpha1.DeviceSlice) Change { return v.setSlice(s.Name, s) }

// DeleteSlice forgets a slice.
func (v *Inventory) DeleteSlice(name string) Change { return v.setSlice(name, nil) }

// setSlice takes note of the slice of a name; nil when it is gone.
func (v *Inventory) setSlice(name string, s *v1alpha1.DeviceSlice) Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, reporters := v.slices[name], len(v.slicesOfNode)
	if v.slices[name] = s; s == nil {
		delete(v.slices, name)
	}
	v.countSlices(before, -1)
	v.countSlices(s, +1)
	change := v.replace(name, before, s)
	change.Configurations = append(v.problemsChanged(before, s), v.reportersChanged(reporters)...)
	return change
}

func (v *Inventory) countSlices(s *v1alpha1.DeviceSlice, n int) {
	if s == nil {
		return
	}
	v.lacking.count(s, n)
	node := s.Spec.NodeName
	if v.slicesOfNode[node] += n; v.slicesOfNode[node] == 0 {
		delete(v.slicesOfNode, node)
	}
}

// replace puts one slice's reports in the place of another's of the same name;
// either may be nil.
func (v *Inventory) replace(name string, before, now *v1alpha1.DeviceSlice) Change {
	was, is := reportsOf(before), reportsOf(now)
	var change Change
	for instance := range sets.KeySet(was).Union(sets.KeySet(is)) {
		r := v.record(instance)
		// Also equal ones are replaced, so that the old slice's memory is freed.
		wasMixed, wasGiven := len(r.kinds) > 1, v.given(instance, r)
		r.put(name, is[instance])
		if !slices.EqualFunc(was[instance], is[instance], sameReport) {
			v.reportsChanged(&change, instance, before, now, wasMixed || wasGiven != v.given(instance, r))
		}
		v.tidy(instance)
	}
	return change
}

// reportsOf sorts a slice's devices by Instance. A device whose name is no
// Instance's is nobody's.
func reportsOf(s *v1alpha1.DeviceSlice) map[string][]report {
	if s == nil {
		return nil
	}
	reports := make(map[string][]report, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		instance := d.Instance()
		if configuration, _ := slot.SplitInstance(instance); configuration != d.Configuration.Name {
			continue
		}
		reports[instance] = append(reports[instance], report{slice: s, device: d, bad: d.Check(s.Spec.NodeName)})
	}
	return reports
}

func sameReport(a, b report) bool {
	return a.slice.Spec.NodeName == b.slice.Spec.NodeName && a.slice.CreationTimestamp.Equal(&b.slice.CreationTimestamp) &&
		apiequality.Semantic.DeepEqual(a.device, b.device)
}

// put replaces a slice's reports of the Instance.
func (r *record) put(sliceName string, reports []report) {
	for _, old := range r.reports[sliceName] {
		kind := old.identity()
		if r.kinds[kind]--; r.kinds[kind] == 0 {
			delete(r.kinds, kind)
		}
	}
	for _, rep := range reports {
		r.kinds[rep.identity()]++
	}
	if r.reports[sliceName] = reports; len(reports) == 0 {
		delete(r.reports, sliceName)
	}
	r.judged = false
}

// given reports whether slots of the Instance are given, where it has claims without a pod:
// such a claim that does not count stays while it keeps the slot from nobody.
func (v *Inventory) given(instance string, r *record) bool {
	for _, c := range r.claims {
		if c.Spec.Pod == nil {
			v.judge(r, v.configurationsOf(instance))
			return r.nodes != nil
		}
	}
	return false
}

// reportsChanged adds an Instance to the change, and the claims of it that may count
// now or no longer: those of the slice's node. Where several devices compete for the
// name, or discoverers speak for other nodes, they are all claims.
func (v *Inventory) reportsChanged(change *Change, instance string, before, now *v1alpha1.DeviceSlice, allClaims bool) {
	owner := v.configurationsOf(instance).owner
	if owner == nil {
		return // nothing is made of its devices, and none of their claims counts
	}
	change.Instances = append(change.Instances, key(owner, instance))
	change.Brokers = append(change.Brokers, key(owner, instance))
	r := v.records[instance]
	all := allClaims || len(r.kinds) > 1 || owner.Spec.Discovery != nil
	for _, claim := range r.claims {
		node := claim.Spec.NodeName
		if all || before != nil && node == before.Spec.NodeName || now != nil && node == now.Spec.NodeName {
			change.Claims = append(change.Claims, claim.Name)
		}
	}
}
