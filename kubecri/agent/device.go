package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
)

// configurationOf returns the Configuration's part of an Instance's name.
func configurationOf(instance string) string {
	return instance[:max(strings.LastIndexByte(instance, '-'), 0)]
}

// Device returns the device behind an Instance as this node sees it now, with
// the Configuration's brokerProperties over its properties; false when it does
// not, or does not know yet. Only memory is read. Properties are the caller's,
// Mounts and DeviceSpecs must not be changed. Safe for concurrent use.
func (a *Agent) Device(instance string) (discovery.Device, bool) {
	a.mu.RLock()
	k := a.kinds[configurationOf(instance)]
	if k == nil {
		a.mu.RUnlock()
		return discovery.Device{}, false
	}
	configuration := k.configuration
	seen, ok := k.devices[instance]
	a.mu.RUnlock()
	if !ok {
		return discovery.Device{}, false
	}
	device := seen.Device
	device.Properties = seen.properties(configuration)
	return device, true
}

// WaitDevice is Device for when the agent may have just started: it waits for
// the first report that can tell. It returns an error that says why there is no
// device, or, when ctx ends first, what was waited for (and wraps ctx.Err()).
func (a *Agent) WaitDevice(ctx context.Context, instance string) (discovery.Device, error) {
	for {
		// Taken before looking, so that no change goes unseen.
		a.mu.RLock()
		changed := a.changed
		a.mu.RUnlock()

		if device, ok := a.Device(instance); ok {
			return device, nil
		}
		waitingFor, err := a.missing(instance)
		if err != nil {
			return discovery.Device{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return discovery.Device{}, fmt.Errorf("device of Instance %s: waiting for %s: %w", instance, waitingFor, ctx.Err())
		}
	}
}

// missing says what has to happen before the device can be there, or returns an
// error when nothing is outstanding.
func (a *Agent) missing(instance string) (waitingFor string, err error) {
	name := configurationOf(instance)
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.ready {
		return "the list of Configurations", nil
	}
	k := a.kinds[name]
	if k == nil {
		all, err := a.configurationsNamed(name)
		if err != nil {
			return "", err
		}
		if first, _ := rank(all); first == nil {
			return "", fmt.Errorf("device of Instance %s: there is no Configuration %q", instance, name)
		}
		return fmt.Sprintf("discovery for Configuration %s to start", name), nil
	}
	return k.missing(instance)
}

func (k *kind) missing(instance string) (waitingFor string, err error) {
	handler := k.configuration.Spec.DiscoveryHandler.Name
	if _, ok := k.devices[instance]; ok {
		return "", nil // reported just now
	}
	switch {
	case k.reported:
		return "", fmt.Errorf("device of Instance %s: discovery handler %q does not see it on this node", instance, handler)
	case k.problem != "":
		return "the first report: " + k.problem, nil
	}
	return fmt.Sprintf("the first report of discovery handler %q", handler), nil
}
