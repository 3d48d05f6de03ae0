package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Device is all that is known of an Instance's device. Nothing in it may be changed.
type Device struct {
	// Configuration owns the name; nil when none does.
	Configuration *akriv0.Configuration
	// Reported is the device as the oldest slice has it whose report counts, so that a node
	// that comes later changes nothing of it; nil when none does.
	Reported *v1alpha1.Device
	// Gone is the device as a node lists it that no longer sees it, and GoneFrom are these nodes, in the
	// order of their names; nil when a report counts.
	Gone     *v1alpha1.Device
	GoneFrom []string
	// Nodes reach the device, in the order of their names.
	Nodes []string
	// Unschedulable are those of them that no longer know whether the device is there: who
	// uses it there goes on, and nobody else gets it.
	Unschedulable map[string]struct{}
	// Claims are of its slots, in the order of their indexes. Those that do not count
	// are among them.
	Claims []Claim
	// LeftOut says of reports why they do not count, at most maxLeftOut of them.
	LeftOut []string
}

// BrokerProperties are those of the device as it is reported, and the Configuration's, which replace those of the
// same names.
func (d *Device) BrokerProperties() map[string]string {
	all := make(map[string]string, len(d.Reported.Properties)+len(d.Configuration.Spec.BrokerProperties))
	maps.Copy(all, d.Reported.Properties)
	maps.Copy(all, d.Configuration.Spec.BrokerProperties)
	return all
}

// Claim is a claim, and why it does not count; nil when it does.
type Claim struct {
	*v1alpha1.SlotClaim
	Index        int
	DoesNotCount error
}

// maxLeftOut bounds what is said of reports that do not count: enough for
// Instance.status.problems.
const maxLeftOut = 17

// standing is what follows from an Instance's reports.
type standing struct {
	first   *v1alpha1.Device // of the device that has the name
	nodes   *nodeSet         // nil: none
	lost    map[string]struct{}
	keep    map[string]struct{} // nodes that list the device as gone; with spec.discovery all selected ones, if one does
	gone    *v1alpha1.Device    // as the first of these lists it, by its slice's name
	leftOut []string
	ignored int // reports that do not count
}

// Device returns what is known under an Instance's name.
func (v *Inventory) Device(instance string) Device {
	v.mu.Lock()
	defer v.mu.Unlock()
	configuration, _ := slot.SplitInstance(instance)
	d := Device{Configuration: v.ownerOf(configuration)}
	r := v.records[instance]
	if r == nil {
		return d
	}
	v.judge(r, v.names[configuration])
	d.Reported, d.LeftOut, d.Unschedulable = r.first, r.leftOut, r.lost
	if r.nodes != nil {
		d.Nodes = r.nodes.sorted
	} else if d.Gone = r.gone; d.Gone != nil {
		d.GoneFrom = slices.Sorted(maps.Keys(r.keep))
	}
	for index, c := range r.claims {
		why := doesNotCount(c, index, r, d.Configuration)
		d.Claims = append(d.Claims, Claim{SlotClaim: c, Index: index, DoesNotCount: why})
	}
	slices.SortFunc(d.Claims, func(a, b Claim) int { return cmp.Compare(a.Index, b.Index) })
	return d
}

// HeldAsSlots are the Instances of the Configuration of a name of which somebody has a slot that DRA did not
// give, in the order of their names.
func (v *Inventory) HeldAsSlots(configuration string) (instances []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	named := v.names[configuration]
	if named == nil {
		return nil
	}
	for instance := range named.instances {
		for _, c := range v.records[instance].claims {
			if !c.Spec.ByDRA() {
				instances = append(instances, instance)
				break
			}
		}
	}
	slices.Sort(instances)
	return instances
}

// DoesNotCount returns why a claim does not make its slot taken; nil when it does.
func (v *Inventory) DoesNotCount(c *v1alpha1.SlotClaim) error {
	s, err := c.Slot()
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	configuration, _ := slot.SplitInstance(s.Instance)
	r := v.records[s.Instance]
	if r == nil {
		r = &record{}
	} else {
		v.judge(r, v.names[configuration])
	}
	return doesNotCount(c, s.Index, r, v.ownerOf(configuration))
}

// doesNotCount decides by a record whose standing is up to date, and the owner of its Configuration's name.
func doesNotCount(c *v1alpha1.SlotClaim, index int, r *record, owner *akriv0.Configuration) error {
	f := v1alpha1.ClaimFacts{Index: index, Given: r.nodes != nil}
	if owner != nil {
		f.Capacity = owner.Spec.Slots()
	}
	_, f.Listed = r.keep[c.Spec.NodeName]
	if r.nodes != nil && !f.Listed {
		_, f.Listed = r.nodes.has[c.Spec.NodeName]
	}
	return f.Why()
}

// Ignored counts the reports and the claims that do not count.
func (v *Inventory) Ignored() (reports, claims int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for instance, r := range v.records {
		named := v.configurationsOf(instance)
		v.judge(r, named)
		reports += r.ignored
		for index, c := range r.claims {
			if doesNotCount(c, index, r, named.owner) != nil {
				claims++
			}
		}
	}
	return reports, claims
}

// judge brings a record's standing up to date.
func (v *Inventory) judge(r *record, named *configurations) {
	if r.judged {
		return
	}
	r.judged = true
	r.standing = standing{}
	if named.owner == nil {
		for _, reports := range r.reports {
			r.ignored += len(reports)
		}
		return
	}
	var selected *nodeSet
	if named.owner.Spec.Discovery != nil {
		selected = v.selectedNodes(named)
	}
	var believed, gone []report
	var problems []string
	for _, reports := range r.reports {
		for _, rep := range reports {
			err := rep.mistrust(named.owner, v.ownerOf(rep.device.Instance()), selected)
			if rep.device.Gone && rep.bad == nil {
				if err == nil {
					gone = append(gone, rep)
				}
				continue
			}
			if err != nil {
				problems = append(problems, fmt.Sprintf("the report of node %s is left out: %v", rep.slice.Spec.NodeName, err))
				continue
			}
			believed = append(believed, rep)
		}
	}
	believed, losers := decideName(believed)
	given := slices.ContainsFunc(believed, report.given)
	if !given {
		gone = append(gone, losers...) // nobody has the name: the claims of each count
	}
	for _, rep := range losers {
		problems = append(problems, fmt.Sprintf("node %s reports the device %.64q, whose Instance would have this name too; it is left out. "+
			"Use a Configuration with instanceNameDigits: 12", rep.slice.Spec.NodeName, rep.device.ID))
	}
	slices.Sort(problems)
	r.ignored = len(problems)
	r.leftOut = slices.Clone(problems[:min(len(problems), maxLeftOut)])
	firstGone := ""
	for _, rep := range gone {
		if given && believed[0].identity() != rep.identity() {
			continue
		}
		if r.gone == nil || rep.slice.Name < firstGone {
			r.gone, firstGone = rep.device, rep.slice.Name
		}
		switch {
		case selected != nil:
			r.keep = selected.has
		case r.keep == nil:
			r.keep = map[string]struct{}{rep.slice.Spec.NodeName: {}}
		default:
			r.keep[rep.slice.Spec.NodeName] = struct{}{}
		}
	}
	if len(believed) == 0 {
		return
	}
	r.first = believed[0].device
	if r.nodes = selected; selected == nil {
		has := make(map[string]struct{}, len(believed))
		for _, rep := range believed {
			has[rep.slice.Spec.NodeName] = struct{}{}
		}
		r.nodes = newNodeSet(has)
	}
	r.lost = lost(believed, r.nodes, selected != nil)
}

// lost returns the nodes for which no report says that the device is there for certain.
// Discoverers report for all nodes.
func lost(reports []report, nodes *nodeSet, discovered bool) map[string]struct{} {
	if !slices.ContainsFunc(reports, func(r report) bool { return r.device.Unschedulable }) {
		return nil
	}
	lost := maps.Clone(nodes.has)
	for _, r := range reports {
		switch {
		case r.device.Unschedulable:
		case discovered:
			return nil
		default:
			delete(lost, r.slice.Spec.NodeName)
		}
	}
	return lost
}

// ownerOf returns the Configuration of the name that is in force; nil for none.
func (v *Inventory) ownerOf(name string) *akriv0.Configuration {
	if named := v.names[name]; named != nil {
		return named.owner
	}
	return nil
}

// mistrust returns why a report does not count, whatever others say; nil when it may.
// namesake is the Configuration that has the Instance's name, nil for none.
func (r *report) mistrust(owner, namesake *akriv0.Configuration, selected *nodeSet) error {
	if r.bad != nil {
		return r.bad
	}
	of := akriv0.Report{Namespace: r.device.Configuration.Namespace, HashDigits: len(r.device.Hash),
		Shared: r.device.Shared, Namesake: namesake}
	if selected != nil {
		_, of.Selected = selected.has[r.slice.Spec.NodeName]
	}
	if err := owner.Refuses(of); err != nil {
		return fmt.Errorf("device %.64q: %w", r.device.ID, err)
	}
	return nil
}

// decideName splits reports of one Instance's name into those of the device that has
// the name, the oldest slice's first, and the others. Reports that a device is unschedulable
// decide nothing while there are others.
func decideName(reports []report) (winner, others []report) {
	slices.SortStableFunc(reports, func(a, b report) int {
		return cmp.Or(
			a.slice.CreationTimestamp.Compare(b.slice.CreationTimestamp.Time),
			cmp.Compare(a.slice.Name, b.slice.Name),
		)
	})
	if !slices.ContainsFunc(reports, func(r report) bool { return r.identity() != reports[0].identity() }) {
		return reports, nil
	}
	has := firstOf(reports)
	for _, r := range reports {
		if r.identity() == has {
			winner = append(winner, r)
		} else {
			others = append(others, r)
		}
	}
	return winner, others
}

// firstOf returns which of the devices has the name. The reports are in order.
func firstOf(reports []report) (has identity) {
	type reporter struct {
		identity
		node string
	}
	given := slices.ContainsFunc(reports, report.given)
	devices, reporters := map[identity]v1alpha1.Contender{}, map[reporter]struct{}{}
	for i, r := range reports {
		if given && !r.given() {
			continue
		}
		who := r.identity()
		c, known := devices[who]
		if !known {
			c = v1alpha1.Contender{Shared: who.shared, Slice: r.slice.Name, Index: i}
			c.Created = r.slice.CreationTimestamp.Time
		}
		by := reporter{who, r.slice.Spec.NodeName}
		if _, counted := reporters[by]; !counted {
			reporters[by] = struct{}{}
			c.Nodes++
		}
		devices[who] = c
	}
	var first v1alpha1.Contender
	for who, c := range devices {
		if first.Nodes == 0 || c.Compare(first) < 0 {
			has, first = who, c
		}
	}
	return has
}

// given reports whether slots are given of the device, as far as the report goes.
func (r report) given() bool { return !r.device.Unschedulable }
