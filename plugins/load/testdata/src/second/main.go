// A scheduler plugin with the name of another one, and KubeDevice's factory.
package main

import (
	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

type second struct{ *group.Scheduler }

// GetName is moody's.
func (second) GetName() string { return "moody" }

// CreateDeviceSchedulerPlugin has its results in the order that KubeDevice's have.
func CreateDeviceSchedulerPlugin() (error, devicescheduler.DeviceScheduler) {
	return nil, second{&group.Scheduler{}}
}

func main() {}
