package v0

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What the status lists is exact, and of what it leaves out nothing is published.
func TestHeldInstances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3*MaxHeldInstances).Draw(t, "Instances")
		var names, held []string
		for i := range n {
			name := fmt.Sprintf("camera-%06x", i*7)
			names = append(names, name)
			if rapid.Bool().Draw(t, "held") {
				held = append(held, name)
			}
		}
		c := &Configuration{Spec: ConfigurationSpec{Allocator: AllocatorDRA}}
		c.Status.Allocator = NewAllocatorStatus(AllocatorDRA, held)
		known := len(held) <= MaxHeldInstances
		for _, name := range names {
			is := slices.Contains(held, name)
			if is && c.Publishes(name) {
				t.Fatalf("%s is held, and would be published", name)
			}
			exact := known || name <= held[MaxHeldInstances-1]
			if exact && !is && !c.Publishes(name) {
				t.Fatalf("%s is free, and would not be published", name)
			}
		}
	})
}

func TestWhoGives(t *testing.T) {
	status := func(a Allocator) *AllocatorStatus { return &AllocatorStatus{Current: a} }
	for _, tc := range []struct {
		spec             Allocator
		status           *AllocatorStatus
		slots, published bool
	}{
		{spec: "", slots: true},
		{spec: AllocatorSlots, slots: true},
		{spec: AllocatorSlots, status: status(AllocatorSlots), slots: true},
		{spec: AllocatorSlots, status: status(AllocatorDRA)},
		{spec: AllocatorDRA},
		{spec: AllocatorDRA, status: status(AllocatorSlots)},
		{spec: AllocatorDRA, status: status(AllocatorDRA), published: true},
	} {
		c := &Configuration{Spec: ConfigurationSpec{Allocator: tc.spec},
			Status: ConfigurationStatus{Allocator: tc.status}}
		if got := c.GivesSlots(); got != tc.slots {
			t.Errorf("spec %q, status %v: slots are given: %t, want %t", tc.spec, tc.status, got, tc.slots)
		}
		if got := c.Publishes("camera-000001"); got != tc.published {
			t.Errorf("spec %q, status %v: is published: %t, want %t", tc.spec, tc.status, got, tc.published)
		}
	}
}
