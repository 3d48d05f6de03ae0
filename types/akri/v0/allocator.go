package v0

import "slices"

// Allocator is who gives a Configuration's devices to pods.
//
// +kubebuilder:validation:Enum=Slots;DRA
type Allocator string

// Values of Allocator; "" means Slots.
const (
	AllocatorSlots Allocator = "Slots"
	AllocatorDRA   Allocator = "DRA"
)

// MaxHeldInstances is how many Instances an AllocatorStatus lists.
const MaxHeldInstances = 100

// AllocatorStatus says who gives a Configuration's devices. kube-scheduler's leader alone writes it, or where
// none runs the controller, and components decide by it: without it, or with Slots, the scheduler
// gives slots; with DRA it gives none,
// and the controller publishes the Instances that are not held.
//
//	spec.allocator  status.allocator  the scheduler           the controller
//	Slots           none, or Slots    gives slots             publishes nothing
//	DRA             none, or Slots    gives none; writes DRA  publishes nothing
//	DRA             DRA               gives none              publishes what is not held
//	Slots           DRA               gives none; writes      publishes nothing
//	                                  Slots
//
// After a change to Slots the scheduler gives those Instances that no ResourceSlice and no
// ResourceClaim's allocation names.
type AllocatorStatus struct {
	// current is who gives the devices.
	Current Allocator `json:"current"`

	// held are Instances whose slots users of the former allocator hold, in the order of their names, at
	// most 100. The current one gives none of them. When heldCount is more, those after the last one
	// listed are not known, and count as held.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Held []string `json:"held,omitempty"`

	// heldCount is how many such Instances there are.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HeldCount int32 `json:"heldCount,omitempty"`
}

// IsDRA reports whether the devices are to be given by DRA.
func (s *ConfigurationSpec) IsDRA() bool { return s.Allocator == AllocatorDRA }

// Allocators returns the allocator that the spec asks for, the one that gives the devices, and how many Instances
// users of the former one hold.
func (c *Configuration) Allocators() (wanted, current Allocator, held int) {
	wanted, current = AllocatorSlots, AllocatorSlots
	if c.Spec.IsDRA() {
		wanted = AllocatorDRA
	}
	if a := c.Status.Allocator; a != nil {
		current, held = a.Current, int(a.HeldCount)
	}
	return wanted, current, held
}

// GivesSlots reports whether kube-scheduler gives slots: nobody wants DRA, and no status says that DRA may
// have them.
func (c *Configuration) GivesSlots() bool {
	return !c.Spec.IsDRA() && (c.Status.Allocator == nil || c.Status.Allocator.Current != AllocatorDRA)
}

// HandedOver reports whether DRA alone gives the Configuration's devices: nobody holds a slot that kube-scheduler gave.
func (c *Configuration) HandedOver() bool {
	a := c.Status.Allocator
	return c.Spec.IsDRA() && a != nil && a.Current == AllocatorDRA && a.HeldCount == 0
}

// Publishes reports whether the Instance may be in a ResourceSlice: DRA gives the Configuration's devices, and
// nobody holds a slot of this one that kube-scheduler gave.
func (c *Configuration) Publishes(instance string) bool {
	a := c.Status.Allocator
	return c.Spec.IsDRA() && a != nil && a.Current == AllocatorDRA && !a.Holds(instance)
}

// Holds reports whether the Instance counts as held by users of the former allocator.
func (a *AllocatorStatus) Holds(instance string) bool {
	if _, listed := slices.BinarySearch(a.Held, instance); listed {
		return true
	}
	if int(a.HeldCount) <= len(a.Held) {
		return false
	}
	return len(a.Held) == 0 || instance > a.Held[len(a.Held)-1]
}

// AllocatorStatusFor is what the status is to be while the allocator that the spec does not name has the
// Instances; nil for none. The names are in order, each once.
func (c *Configuration) AllocatorStatusFor(held []string) *AllocatorStatus {
	switch {
	case c.Spec.IsDRA():
		return NewAllocatorStatus(AllocatorDRA, held)
	case len(held) > 0:
		return NewAllocatorStatus(AllocatorSlots, held)
	}
	return nil
}

// NewAllocatorStatus makes a status of Instances that are held. The names are in order, each once.
func NewAllocatorStatus(current Allocator, held []string) *AllocatorStatus {
	return &AllocatorStatus{Current: current, HeldCount: int32(len(held)),
		Held: slices.Clone(held[:min(len(held), MaxHeldInstances)])}
}
