// A device plugin.
package main

import (
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

type nothing struct{}

func (nothing) New() error                           { return nil }
func (nothing) Start() error                         { return nil }
func (nothing) UpdateNodeInfo(*types.NodeInfo) error { return nil }
func (nothing) GetName() string                      { return "nothing" }

func (nothing) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, nil
}

// CreateDevicePlugin is what kubecri looks up.
func CreateDevicePlugin() (device.Device, error) { return nothing{}, nil }

func main() {}
