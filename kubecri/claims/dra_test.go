package claims

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// ofClaim is a ResourceClaim.
var ofClaim = v1alpha1.ResourceClaimReference{Namespace: "ns", Name: "claim", UID: "u1"}

// forDRA is the claim of a ResourceClaim's slot.
func forDRA(holder string) v1alpha1.SlotClaimSpec {
	return v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel, Holder: holder, ResourceClaim: &ofClaim}
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
	all := f.OfResourceClaims()[ofClaim]
	if !held[name.Instance] || len(all) != 1 || len(f.Holdings("")) != 0 || f.anyUnused() {
		t.Errorf("held %v, by ResourceClaims %v, by ids %v", held, all, f.Holdings(""))
	}
	if err := f.Free(t.Context(), all); err != nil || f.api.who(t, name.String()) != "" {
		t.Errorf("not released (%v): %s", err, f.api.who(t, name.String()))
	}
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
	await.That(t, "the claim to be known", func() bool { return len(f.OfResourceClaims()) == 1 })
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

// A ResourceClaim that is prepared uses its slots as a container does, in each mode: no container gets them, what
// somebody deletes is claimed again, and what it uses no more is released, also when it was freed just before it is
// held once more.
func TestPreparedResourceClaim(t *testing.T) {
	for mode, kubelet := range map[string]*Kubelet{"by pods": nil, "by ids of the kubelet's": {
		Ask:   func(context.Context) (time.Duration, error) { return 0, nil },
		Keeps: func(slot.Name) bool { return true }}} {
		t.Run(mode, func(t *testing.T) {
			f := start(t, newAPI(t, 3, nil), &fakeRuntime{}, setup{kubelet: kubelet})
			first, second := mustSlot(t, "cam-8120fe-0"), mustSlot(t, "cam-8120fe-1")
			holder := "dra.u1.s0"
			uses := map[slot.Name]string{first: holder, second: holder}
			f.Use(ofClaim, uses)
			for name := range uses {
				f.want(t, name.String(), "CL "+holder+" "+here)
			}
			if taken := f.Taken("cam-8120fe", "dra.u2.s0"); len(taken) != 2 ||
				!strings.Contains(taken[1], "ResourceClaim ns/claim") {
				t.Errorf("taken: %v", taken)
			}
			if _, err := f.Take(t.Context(), request(t, "p1", "cam", first.String())); err == nil ||
				!strings.Contains(err.Error(), "ResourceClaim ns/claim") {
				t.Errorf("a container has the slot, too: %v", err)
			}
			if _, err := f.resync(t.Context()); err != nil { // the runtime knows nothing of it
				t.Fatal(err)
			}
			f.still(t, first.String(), "CL "+holder+" "+here)
			f.Use(ofClaim, map[slot.Name]string{first: holder})
			f.want(t, second.String(), "")
			f.Use(ofClaim, nil)
			f.want(t, first.String(), "")

			for range 20 {
				if _, _, err := f.HoldFor(t.Context(), first, forDRA(holder)); err != nil {
					t.Fatal(err)
				}
				f.still(t, first.String(), "CL "+holder+" "+here)
				f.enqueue(f.containers.freeUnused(holder, []slot.Name{first}))
			}
		})
	}
}
