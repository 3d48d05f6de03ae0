package ledger

import (
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A fork begins with what its draft has, forks of forks too, and changes nothing in it.
func TestFork(t *testing.T) {
	l := ledgerOf(akriv0.ConfigurationSpec{Capacity: 2})
	share(l, "cam-1", "a", "b")
	one := func(uid string) *Request {
		return &Request{
			Pod:        Pod{UID: uid, Name: uid},
			Containers: []ContainerRequest{{Name: "main", Resources: []ResourceRequest{{Name: "cam", Count: 1}}}},
		}
	}
	wantFit := func(what string, draft *Draft, want bool) {
		t.Helper()
		if _, shortfall := draft.Fork().Fit("b", one("new")); (shortfall == nil) != want {
			t.Errorf("%s: another pod fits: %t, want %t", what, shortfall == nil, want)
		}
	}
	holder := one("holder")
	a, shortfall := l.Draft(Spread, holder.Pod).Fit("a", holder)
	if shortfall != nil {
		t.Fatal(shortfall)
	}
	l.Observe(holder.Pod, "a", a)

	base := l.Draft(Spread, one("new").Pod)
	wantFit("one of two slots is free", base, true)
	full := base.Fork()
	full.Reserve("a", one("first"))
	wantFit("a fork of the one that took the last slot", full.Fork(), false)
	wantFit("the base of the one that took the last slot", base, true)
	freed := full.Fork()
	freed.Release("holder")
	wantFit("a fork of the one without the holder", freed, true)
	wantFit("the base of the one without the holder", full, false)
	freed.Take("b", Assignment{"main": {{Resource: "cam", Slot: a.Slots()[0]}}})
	wantFit("another pod has taken that slot", freed, false)
	again := full.Fork()
	again.Release("holder")
	again.Return("holder")
	wantFit("the holder is back", again, false)
	again.Release("holder")
	wantFit("the holder is away again", again, true)
}
