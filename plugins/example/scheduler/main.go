// The scheduler's half of the example plugin; see package widget.
package main

import (
	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// CreateDeviceSchedulerPlugin is what kube-scheduler looks up.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return widget.Scheduler{}, nil
}

func main() {}
