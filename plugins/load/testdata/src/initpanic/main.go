// A scheduler plugin that panics while it is opened.
package main

import "github.com/kubeslot/kubeslot/types/devicescheduler"

func init() { panic("no such bus") }

// CreateDeviceSchedulerPlugin is never called.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { return nil, nil }

func main() {}
