package ledger

import (
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// SetSlice adds or updates a DeviceSlice. It keeps nothing of s. The errors are of
// devices that are left out.
func (l *Ledger) SetSlice(s *v1alpha1.DeviceSlice) (Event, []error) {
	u := l.update()
	r := l.slices[s.Name]
	if r != nil && (r.node.name != s.Spec.NodeName || !r.created.Equal(s.CreationTimestamp.Time)) {
		// A watch may show a deletion and a new slice as one update.
		u.drop(r)
		r = nil
	}
	if r == nil {
		r = &sliceRecord{name: strings.Clone(s.Name), created: s.CreationTimestamp.Time, node: l.node(s.Spec.NodeName)}
		r.node.slices = append(r.node.slices, r)
		l.slices[r.name] = r
	}
	r.uid, r.version = strings.Clone(string(s.UID)), strings.Clone(s.ResourceVersion)
	reports, errs := l.read(r.node, s)
	l.totals.unsound += len(errs) - r.unsound
	r.unsound = len(errs)
	u.replace(r, reports)
	event := u.done()
	for _, report := range reports {
		if err := l.leftOut(r.node, report); err != nil {
			errs = append(errs, err)
		}
	}
	return event, errs
}

// DeleteSlice removes a DeviceSlice.
func (l *Ledger) DeleteSlice(name string) Event {
	r := l.slices[name]
	if r == nil {
		return Event{}
	}
	u := l.update()
	u.drop(r)
	return u.done()
}

// drop removes a slice.
func (u *update) drop(s *sliceRecord) {
	u.replace(s, nil)
	u.totals.unsound -= s.unsound
	s.node.slices = slices.DeleteFunc(s.node.slices, func(o *sliceRecord) bool { return o == s })
	delete(u.slices, s.name)
	u.dropNode(s.node)
}

// read finds what the slice reports, and says what is wrong with the rest. Of devices that are
// kept the node has no slots to give, as if they were not there; pods that hold some hold them,
// and so do claims.
func (l *Ledger) read(n *nodeRecord, s *v1alpha1.DeviceSlice) (reports []*report, errs []error) {
	reports = make([]*report, 0, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		device := &s.Spec.Devices[i]
		if err := device.Check(n.name); err != nil {
			errs = append(errs, err)
		} else if r := l.report(n, device); !slices.Contains(reports, r) {
			reports = append(reports, r)
		}
	}
	return reports, errs
}

// replace has the slice report something else.
func (u *update) replace(s *sliceRecord, reports []*report) {
	if slices.Equal(s.reports, reports) {
		return
	}
	gone, added := without(s.reports, reports), without(reports, s.reports)
	s.reports = reports
	for _, r := range gone {
		r.unlist(s)
		u.touched[r.device] = true
	}
	for _, r := range added {
		r.list(s)
		u.touched[r.device] = true
	}
	asBefore := func(r *report) bool { return r.kept || s.node.lists(r, s) }
	gone, added = slices.DeleteFunc(gone, asBefore), slices.DeleteFunc(added, asBefore)
	for _, r := range gone {
		r.nodes--
	}
	for _, r := range added {
		r.nodes++
	}
	u.leave(s.node, gone)
	u.join(s.node, added)
}

// without returns those of a that are not in b.
func without(a, b []*report) []*report {
	return slices.DeleteFunc(slices.Clone(a), func(r *report) bool { return slices.Contains(b, r) })
}

// SliceVersion returns the UID and the resource version of the DeviceSlice as last set;
// "" when there is none.
func (l *Ledger) SliceVersion(name string) (uid, version string) {
	if s := l.slices[name]; s != nil {
		return s.uid, s.version
	}
	return "", ""
}

// EachSlice calls visit with the name of each DeviceSlice, in no order.
func (l *Ledger) EachSlice(visit func(name string)) {
	for name := range l.slices {
		visit(name)
	}
}
