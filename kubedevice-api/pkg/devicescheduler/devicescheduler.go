// Package devicescheduler is KubeDevice-API's pkg/devicescheduler: aliases of
// Kubeslot's types.
package devicescheduler

import "github.com/kubeslot/kubeslot/types/devicescheduler"

type (
	// PredicateFailureReason is devicescheduler.PredicateFailureReason.
	PredicateFailureReason = devicescheduler.PredicateFailureReason
	// DeviceScheduler is devicescheduler.DeviceScheduler.
	DeviceScheduler = devicescheduler.DeviceScheduler
)
