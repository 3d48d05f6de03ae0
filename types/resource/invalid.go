package resource

import (
	"fmt"

	"github.com/kubeslot/kubeslot/types"
)

// InvalidRequest is the reason of a pod that fits no node, ever.
type InvalidRequest struct {
	Container string
	Resource  types.ResourceName
	Count     int64
}

// GetReason returns the reason as a sentence.
func (r *InvalidRequest) GetReason() string {
	return fmt.Sprintf("container %q requests %d of %q: a count cannot be negative", r.Container, r.Count, r.Resource)
}

// GetInfo returns the resource and the count.
func (r *InvalidRequest) GetInfo() (types.ResourceName, int64, int64, int64) {
	return r.Resource, r.Count, 0, 0
}

// Error is GetReason.
func (r *InvalidRequest) Error() string { return r.GetReason() }
