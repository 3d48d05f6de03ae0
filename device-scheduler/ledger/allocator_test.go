package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// What happens to allocators in TestHistories.

// allocator changes a Configuration's allocator, or what its status says.
func (w *world) allocator(t *rapid.T) {
	c := w.configurations[pickKey(t, w.configurations)].DeepCopy()
	draw := func(label string) akriv0.Allocator {
		return rapid.SampledFrom([]akriv0.Allocator{"", akriv0.AllocatorSlots, akriv0.AllocatorDRA}).Draw(t, label)
	}
	c.Spec.Allocator, c.Status.Allocator = draw("allocator"), nil
	if current := draw("current"); current != "" {
		c.Status.Allocator = &akriv0.AllocatorStatus{Current: current}
	}
	w.setConfiguration(c)
}

// drawDRA has a ResourceSlice, or a ResourceClaim's allocation, name other Instances.
func (w *world) drawDRA(t *rapid.T) {
	object := rapid.SampledFrom([]string{"slice", "claim"}).Draw(t, "object")
	draw := rapid.SampledFrom([]string{full("cam-1"), full("cam-2"), full("gps-1"), "another"})
	w.dra[object] = rapid.SliceOfN(draw, 0, 3).Draw(t, "instances")
	w.event.add(w.SetDRA(object, w.dra[object]))
}

// withheld reports whether no slots of the Instance may be given.
func (w *world) withheld(instance string) bool {
	configuration, _ := slot.SplitInstance(instance)
	owner := w.owner(configuration)
	return owner != nil && (!owner.GivesSlots() || w.hasDRA(instance))
}

func (w *world) hasDRA(instance string) bool {
	for _, has := range w.dra {
		if slices.Contains(has, instance) {
			return true
		}
	}
	return false
}

// checkHandover looks for the Instances that the other allocator has, one by one.
func (w *world) checkHandover(t *rapid.T) {
	handovers := map[string]Handover{}
	for _, h := range w.Handovers() {
		handovers[h.Configuration.Name] = h
	}
	for _, configuration := range []string{"cam", "gps"} {
		c, got := w.owner(configuration), handovers[configuration]
		var want []string
		for _, n := range []string{"1", "1@a", "1@b", "1@c", "2", "2@a", "2@b", "2@c", "3", "3@a", "3@b", "3@c"} {
			instance := full(configuration + "-" + n)
			has := c != nil && !c.Spec.IsDRA() && w.hasDRA(instance)
			for i := 0; i < 11 && c != nil && c.Spec.IsDRA(); i++ {
				s := slot.Name{Instance: instance, Index: i}
				has = has || len(w.holders(s, w.pods, w.assumed)) > 0 || w.claimOn(s) != ""
			}
			if has {
				want = append(want, instance)
			}
		}
		if matters := c != nil && (c.Spec.IsDRA() || c.Status.Allocator != nil || len(want) > 0); !matters {
			c = nil
		}
		if slices.Sort(want); c != got.Configuration || !slices.Equal(got.Held, want) {
			t.Fatalf("the other allocator of %s has %v, want %v", configuration, got, want)
		}
	}
}

// What was chosen before a change of the allocator is not given after it, and no pod of any kind gets a slot.
func TestChosenBeforeTheAllocatorChanged(t *testing.T) {
	l, req := ledgerOf(akriv0.ConfigurationSpec{}), podFor(1, 1)
	share(l, "cam-1", "a")
	fit := func() (Assignment, *Shortfall) { return l.Draft(Spread, req.Pod).Fit("a", req) }
	chosen, _ := fit()
	toDRA := configurationOf("cam", akriv0.ConfigurationSpec{Allocator: akriv0.AllocatorDRA})
	l.SetConfiguration(toDRA)
	if _, err := l.Assume(req.Pod, "a", chosen); err == nil || l.Holds(req.UID) != nil {
		t.Errorf("the slot was assumed: %v", err)
	}
	if event := l.Nominate(req.Pod, "a", chosen); !slices.Equal(event.Displaced, []string{req.UID}) ||
		l.Nominated(req.UID) != "" {
		t.Errorf("the slot is nominated: %+v", event)
	}
	l.SetConfiguration(configurationOf("cam", akriv0.ConfigurationSpec{}))
	l.KeepUntilClaimed(req.Pod, "a", chosen)
	if _, shortfall := fit(); shortfall != nil {
		t.Errorf("the pod's own slot: %v", shortfall)
	}
	l.SetConfiguration(toDRA)
	_, shortfall := fit()
	view := looked(l.View(req, NewNodeList([]string{"a"})))
	if seen, _ := view.At(0); shortfall == nil || seen == nil || l.Ready(req.UID) {
		t.Errorf("its own slot after the change: %v, seen %v", shortfall, seen)
	}
	checkInvariants(t, l)
}
