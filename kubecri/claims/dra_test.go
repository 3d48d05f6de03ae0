package claims

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// forDRA is the claim of a ResourceClaim's slot.
func forDRA(holder string) v1alpha1.SlotClaimSpec {
	return v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel, Holder: holder,
		ResourceClaim: &v1alpha1.ResourceClaimReference{Namespace: "ns", Name: "claim", UID: "u1"}}
}

// What a ResourceClaim holds stays without a container until it is released, and promises nothing.
func TestResourceClaimsKeepSlots(t *testing.T) {
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{grace: time.Nanosecond, leases: true})
	name := mustSlot(t, "cam-8120fe-0")
	for _, want := range []bool{true, false} {
		if wrote, other, err := f.HoldFor(t.Context(), name, forDRA("dra.u1.s0")); wrote != want || other != nil ||
			err != nil {
			t.Fatalf("HoldFor() = %t, %v, %v; want %t", wrote, other, err, want)
		}
	}
	if _, err := f.resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // it is more than the grace between them
		f.still(t, name.String(), "CL dra.u1.s0 "+here)
	}
	if _, other, err := f.HoldFor(t.Context(), name, forDRA("dra.u2.s0")); other == nil || err != nil {
		t.Errorf("another ResourceClaim has the slot, too: %v, %v", other, err)
	}
	held, _ := f.Held()
	if !held[name.Instance] || len(f.OfDRA()) != 1 || len(f.Holdings("")) != 0 || f.anyUnused() {
		t.Errorf("held %v, by ResourceClaims %v, by ids %v", held, f.OfDRA(), f.Holdings(""))
	}
	if err := f.Release(t.Context(), f.OfDRA()[0]); err != nil {
		t.Fatal(err)
	}
	f.want(t, name.String(), "")
}

// A container whose claim somebody has deleted, and whose slot a ResourceClaim has by now, has lost it: the
// ResourceClaim's stays.
func TestSlotLostToAResourceClaim(t *testing.T) {
	a := newAPI(t, 2, nil)
	f := start(t, a, &fakeRuntime{}, setup{})
	name := mustSlot(t, "cam-8120fe-0")
	spec := forDRA("dra.u1.s0")
	spec.NodeName = here
	if err := a.add(v1alpha1.NewSlotClaim(name, spec, v1alpha1.NodeOwner(here, "uid-a"))); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the claim to be known", func() bool { return len(f.OfDRA()) == 1 })
	f.runtime.add(t, "c1", "p1", "cam", name.String())
	if _, err := f.resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantEvent(t, "SlotLost", "ResourceClaim ns/claim")
	f.still(t, name.String(), "CL dra.u1.s0 "+here)
}

// After a restore of the API server's backup a slot that is in use is claimed again at once, before others
// may take slots.
func TestResourceClaimsClaimAgainAtOnce(t *testing.T) {
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{
		believable: func(context.Context) error { return errors.New("others may have claimed slots") }})
	spec := forDRA("dra.u1.s0")
	if _, _, err := f.HoldFor(t.Context(), mustSlot(t, "cam-8120fe-0"), spec); err == nil {
		t.Error("a new slot was claimed")
	}
	spec.MadeAgain = true
	if wrote, _, err := f.HoldFor(t.Context(), mustSlot(t, "cam-8120fe-0"), spec); err != nil || !wrote {
		t.Errorf("a slot in use was not claimed again: %t, %v", wrote, err)
	}
}

// What ResourceClaims hold is not in the checkpoint: a claim of thousands of slots would have it written for each.
func TestResourceClaimsAreNotInTheCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	f := start(t, newAPI(t, 2, nil), &fakeRuntime{}, setup{checkpoint: path})
	var all []slot.Name
	for _, name := range []string{"cam-8120fe-0", "cam-8120fe-1"} {
		all = append(all, mustSlot(t, name))
		if _, _, err := f.HoldFor(t.Context(), mustSlot(t, name), forDRA("dra.u1.s0")); err != nil {
			t.Fatal(err)
		}
	}
	awaitCheckpoint(t, path)
	if err := f.writeCheckpoint(); err != nil {
		t.Fatal(err)
	}
	awaitCheckpoint(t, path)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if err := f.GiveBack(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(before, now) {
		t.Errorf("it was written again: %v", err)
	}
}
