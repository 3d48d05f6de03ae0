// Package device is KubeDevice-API's pkg/device: aliases of Kubeslot's types.
package device

import (
	"fmt"
	"plugin"

	"github.com/kubeslot/kubeslot/types/device"
)

type (
	// Mount is device.Mount.
	Mount = device.Mount
	// Device is device.Device.
	Device = device.Device
)

// factory is the function of a device plugin's file.
const factory = "CreateDevicePlugin"

// CreateDeviceFromPlugin opens the file and returns the device that its
// CreateDevicePlugin makes.
//
// It is here for programs that tested their plugins with it. kubecri does not use
// it: it checks a file before it opens it.
func CreateDeviceFromPlugin(pluginName string) (Device, error) {
	p, err := plugin.Open(pluginName)
	if err != nil {
		return nil, err
	}
	symbol, err := p.Lookup(factory)
	if err != nil {
		return nil, err
	}
	create, ok := symbol.(func() (Device, error))
	if !ok {
		return nil, fmt.Errorf("%s: %s is a %T, want a func() (device.Device, error)", pluginName, factory, symbol)
	}
	return create()
}
