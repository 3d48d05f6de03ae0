// The scheduler's half of the NVIDIA GPU plugin; see package schedule.
package main

import (
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/schedule"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// CreateDeviceSchedulerPlugin is what kube-scheduler looks up.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return schedule.Scheduler{}, nil
}

func main() {}
