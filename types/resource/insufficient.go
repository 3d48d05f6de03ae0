package resource

import (
	"fmt"

	"github.com/kubeslot/kubeslot/types"
)

// InsufficientResourceError says which resource ran short, and by how much. It
// implements devicescheduler.PredicateFailureReason.
type InsufficientResourceError struct {
	ResourceName types.ResourceName
	requested    int64
	used         int64
	capacity     int64
	never        bool
}

// NewInsufficientResourceError returns the reason that of capacity units, of
// which used are held, requested more were needed.
func NewInsufficientResourceError(name types.ResourceName, requested, used, capacity int64) *InsufficientResourceError {
	return &InsufficientResourceError{ResourceName: name, requested: requested, used: used, capacity: capacity}
}

// NeverEnough is the error of a request that the node could not meet if nothing of it were in use.
func (e *InsufficientResourceError) NeverEnough() *InsufficientResourceError {
	never := *e
	never.never = true
	return &never
}

// Never reports whether the end of other pods would not help.
func (e *InsufficientResourceError) Never() bool { return e.never }

// GetReason returns a text without numbers, so that nodes that lack the same
// thing share one line in the pod's events.
func (e *InsufficientResourceError) GetReason() string {
	if e.never {
		return "Never enough " + string(e.ResourceName)
	}
	return "Insufficient " + string(e.ResourceName)
}

// GetInfo returns the resource, and how much of it was requested, is used and
// exists in all.
func (e *InsufficientResourceError) GetInfo() (types.ResourceName, int64, int64, int64) {
	return e.ResourceName, e.requested, e.used, e.capacity
}

// Error is GetReason with the numbers.
func (e *InsufficientResourceError) Error() string {
	return fmt.Sprintf("%s: requested %d, used %d of %d", e.GetReason(), e.requested, e.used, e.capacity)
}
