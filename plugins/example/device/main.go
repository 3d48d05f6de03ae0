// The node's half of the example plugin; see package widget.
package main

import (
	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/types/device"
)

// CreateDevicePlugin is what kubecri looks up.
func CreateDevicePlugin() (device.Device, error) { return &widget.Device{}, nil }

func main() {}
