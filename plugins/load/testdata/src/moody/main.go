// A scheduler plugin whose factory does what $MOOD says.
package main

import (
	"errors"
	"os"

	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

type moody struct{ *group.Scheduler }

// GetName is not the group scheduler's.
func (moody) GetName() string {
	if os.Getenv("MOOD") == "nameless" {
		return ""
	}
	return "moody"
}

// CreateDeviceSchedulerPlugin is what the scheduler looks up.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	switch os.Getenv("MOOD") {
	case "panic":
		panic("not today")
	case "error":
		return nil, errors.New("no license")
	case "nil":
		return nil, nil
	case "hang":
		select {}
	}
	return moody{&group.Scheduler{}}, nil
}

func main() {}
