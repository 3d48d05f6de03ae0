// The node's half of the NVIDIA GPU plugin; see package node.
package main

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/nvmllink"
	"github.com/kubeslot/kubeslot/types/device"
)

// CreateDevicePlugin is what kubecri looks up.
func CreateDevicePlugin() (device.Device, error) {
	return node.NewDevice(nvml.New(), func() error { return nvmllink.Load(nvmllink.Library) }), nil
}

func main() {}
