package reports

import (
	"maps"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Device is a device as its handler reported it.
type Device struct {
	discovery.Device
	Shared        bool
	Unschedulable bool
	Hash          string // slot.InstanceHash of it
	Size          int    // at most, in a slice, in bytes of JSON
}

// Reference names the Configuration in a DeviceSlice.
func Reference(c *v0.Configuration) v1alpha1.ConfigurationReference {
	return v1alpha1.ConfigurationReference{Namespace: c.Namespace, Name: c.Name}
}

// Is reports whether the device is as slices have it.
func (f *Device) Is(d *v1alpha1.Device) bool {
	return f.ID == d.ID && f.Shared == d.Shared && f.Unschedulable == d.Unschedulable && !d.Gone && maps.Equal(f.Properties, d.Properties)
}
