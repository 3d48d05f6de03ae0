package agent

import (
	"context"
	"fmt"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// reasonDeviceLimit is the reason of the problem of a Configuration with more devices than spec.maxDevices.
const reasonDeviceLimit = "DeviceLimit"

// limit leaves out devices beyond the Configuration's spec.maxDevices. Those that are in the node's slices,
// as named says, stay: pods may hold them. registry.mu must be held.
func (s *session) limit(named func(hash string) (id string)) {
	s.standing.Devices, s.beyond = reports.Limit(s.standing.Devices, s.configuration.Spec.DevicesLimit(),
		func(hash string) bool { return named(hash) != "" })
}

// limitProblem says how many devices are left out; nil for none.
func (s *session) limitProblem() *v1alpha1.Problem {
	if s.beyond == 0 {
		return nil
	}
	ref := reports.Reference(s.configuration)
	return &v1alpha1.Problem{Configuration: &ref, Reason: reasonDeviceLimit, Message: fmt.Sprintf(
		"%d devices are left out: spec.maxDevices is %d on each node. Raise it, or have the handler find fewer",
		s.beyond, s.configuration.Spec.DevicesLimit())}
}

// configure gives the session the newest version of its Configuration. It returns what is to be called when
// registry.mu, which must be held, is not any more.
func (a *Agent) configure(ctx context.Context, s *session, c *v0.Configuration) (record func()) {
	limit := s.configuration.Spec.DevicesLimit()
	s.configuration = c
	if c.Spec.DevicesLimit() == limit {
		return func() {}
	}
	return a.settle(ctx, s)
}
