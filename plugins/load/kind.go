package load

import (
	"fmt"
	"plugin"

	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// Kind is a kind of plugin: an interface and the function that makes one.
type Kind[T interface{ GetName() string }] struct {
	// What is the kind's name in messages.
	What string
	// Factory is the exported function of package main that makes the plugin. It
	// is a func() (T, error), or a func() (error, T), as some KubeDevice plugins
	// have it.
	Factory string
}

// Schedulers are the scheduler's plugins, Devices those of the node.
var (
	Schedulers = Kind[devicescheduler.DeviceScheduler]{What: "device scheduler", Factory: "CreateDeviceSchedulerPlugin"}
	Devices    = Kind[device.Device]{What: "device", Factory: "CreateDevicePlugin"}
)

var factories = []string{Schedulers.Factory, Devices.Factory}

// factory returns the plugin's factory with its results in one order.
func (k Kind[T]) factory(p *plugin.Plugin) (func() (T, error), *Finding) {
	symbol, err := p.Lookup(k.Factory)
	if err != nil {
		return nil, &Finding{WrongFactory, fmt.Sprintf("has no function %s in its package main", k.Factory)}
	}
	switch f := symbol.(type) {
	case func() (T, error):
		return f, nil
	case func() (error, T): //nolint:staticcheck // KubeDevice's order
		return func() (T, error) { err, v := f(); return v, err }, nil
	default:
		return nil, &Finding{WrongFactory, fmt.Sprintf("has %s as a %T; it must be a %T", k.Factory, symbol, *new(func() (T, error)))}
	}
}
