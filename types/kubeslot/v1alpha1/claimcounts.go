package v1alpha1

import (
	"errors"
	"fmt"
)

// ClaimFacts decide whether a SlotClaim counts: whether it makes its slot taken. Scheduler
// and controller decide by them alike. Nothing that the claim or its Node says of itself is
// among them: not whether the claim names a pod, nor the node's mode. A node could say
// either to have claims count of devices that it does not reach.
//
// +k8s:deepcopy-gen=false
type ClaimFacts struct {
	// Index is the slot's, and Capacity the number of the Instance's slots: 0 when no
	// Configuration is in force for it.
	Index, Capacity int
	// Listed is true when the DeviceSlices of the claim's own node list the very device that
	// has the Instance's name, usable or not: of the same id, as shared or as local, for the
	// Configuration in force. With spec.discovery it is true when that selects the node, and
	// a node that is selected lists the device.
	Listed bool
	// Given is true when some node lists the device as one whose slots it gives. It does
	// not decide, and says whether a claim that does not count is in anybody's way.
	Given bool
}

// Reasons why a claim does not count.
var (
	ErrNoConfiguration = errors.New("there is no such Configuration")
	ErrNotListed       = errors.New("the node does not see the device")
	// ErrNotGiven is ErrNotListed for a device that no node sees.
	ErrNotGiven = errors.New("the node does not see the device, and no other does")
	// ErrBeyondCapacity is of a slot that there is not, or no longer. Why says how many there are.
	ErrBeyondCapacity = errors.New("the slot is beyond the capacity")
)

// Counts reports whether the claim counts.
func (f ClaimFacts) Counts() bool { return f.Listed && f.Index < f.Capacity }

// Why returns why the claim does not count; nil when it does.
func (f ClaimFacts) Why() error {
	switch {
	case f.Counts():
		return nil
	case f.Capacity == 0:
		return ErrNoConfiguration
	case !f.Listed && !f.Given:
		return ErrNotGiven
	case !f.Listed:
		return ErrNotListed
	}
	return fmt.Errorf("%w: the device has only the slots 0 to %d", ErrBeyondCapacity, f.Capacity-1)
}

// InNobodysWay reports whether nobody can be given the slot of a claim that does not count,
// for the reason that Why gave.
func InNobodysWay(why error) bool {
	return errors.Is(why, ErrNoConfiguration) || errors.Is(why, ErrNotGiven) || errors.Is(why, ErrBeyondCapacity)
}
