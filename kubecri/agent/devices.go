package agent

import "github.com/kubeslot/kubeslot/discovery"

// Devices returns all devices that the node sees now, by Instance, as Device
// does, and what is closed when that may have changed.
func (a *Agent) Devices() (map[string]discovery.Device, <-chan struct{}) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := map[string]discovery.Device{}
	for _, k := range a.kinds {
		for instance, seen := range k.devices {
			device := seen.Device
			device.Properties = seen.properties(k.configuration)
			all[instance] = device
		}
	}
	return all, a.changed
}

// Gone reports whether it is known that the node does not see the Instance's
// device: false as long as a report is outstanding that may have it.
func (a *Agent) Gone(instance string) bool {
	_, err := a.missing(instance)
	return err != nil
}
