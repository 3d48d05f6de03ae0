package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Device returns the device behind an Instance as this node sees it now, with
// the Configuration's brokerProperties over its properties; false when it does
// not, does not know yet, or an older Configuration has the Instance's name. With
// spec.discovery that is what any node reports.
// Only memory is read. Properties are the caller's, Mounts and DeviceSpecs must not
// be changed. Safe for concurrent use.
func (a *Agent) Device(instance string) (discovery.Device, bool) {
	name, hash := slot.SplitInstance(instance)
	if a.oldest().InForce(instance) != nil {
		return discovery.Device{}, false
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	s := a.sessions[name]
	if s == nil {
		return discovery.Device{}, false
	}
	return s.device(hash)
}

// device is Device for one session. registry.mu must be held.
func (s *session) device(hash string) (discovery.Device, bool) {
	f, ok := s.standing.Devices[hash]
	device := f.Device
	if !ok && s.reach != nil {
		device, ok = s.reach.device(hash)
	}
	if !ok {
		return discovery.Device{}, false
	}
	return configured(device, s.configuration), true
}

// Devices returns all devices that the node sees now, by Instance, as Device
// does, and what is closed when that may have changed.
func (a *Agent) Devices() (map[string]discovery.Device, <-chan struct{}) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	oldest := a.oldest()
	all := map[string]discovery.Device{}
	for name, s := range a.sessions {
		hashes := slices.Collect(maps.Keys(s.standing.Devices))
		if s.reach != nil {
			hashes = append(hashes, s.reach.all()...)
		}
		for _, hash := range hashes {
			if device, ok := s.device(hash); ok {
				all[slot.InstanceName(name, hash)] = device
			}
		}
	}
	maps.DeleteFunc(all, func(instance string, _ discovery.Device) bool { return oldest.InForce(instance) != nil })
	return all, a.changed
}

// configured is the device with the Configuration's properties over the handler's, in a
// map of its own, and with those of them that may be variables.
func configured(device discovery.Device, c *v0.Configuration) discovery.Device {
	all := make(map[string]string, len(device.Properties)+len(c.Spec.BrokerProperties))
	maps.Copy(all, device.Properties)
	maps.Copy(all, c.Spec.BrokerProperties)
	device.Properties, device.Variables, device.BrokerVariables = all, map[string]bool{}, map[string]bool{}
	for name := range all {
		switch {
		case c.Spec.MayBeVariable(name):
			device.Variables[name] = true
		case c.Spec.MayBeBrokerVariable(name):
			device.BrokerVariables[name] = true
		}
	}
	return device
}

// Gone reports whether it is known that the node does not see the Instance's
// device: false as long as a report is outstanding that may have it.
func (a *Agent) Gone(instance string) bool {
	_, err := a.missing(instance)
	return err != nil
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
			if err := a.allowed(instance, device); err != nil {
				return discovery.Device{}, err
			}
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

// allowed looks again at where the device's paths lead: they may have changed since it
// was reported.
func (a *Agent) allowed(instance string, device discovery.Device) error {
	if len(device.Mounts)+len(device.DeviceSpecs) == 0 {
		return nil
	}
	name, _ := slot.SplitInstance(instance)
	handler := ""
	a.mu.RLock()
	if s := a.sessions[name]; s != nil {
		handler = s.configuration.Spec.DiscoveryHandler.Name
	}
	a.mu.RUnlock()
	if err := a.config.AllowedPaths.Check(handler, device); err != nil {
		return fmt.Errorf("device of Instance %s: %w", instance, err)
	}
	return nil
}

// missing says what has to happen before the device can be there, or returns an
// error when nothing is outstanding.
func (a *Agent) missing(instance string) (waitingFor string, err error) {
	name, hash := slot.SplitInstance(instance)
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.ready {
		return "the list of Configurations", nil
	}
	s := a.sessions[name]
	oldest := a.oldest()
	if other := oldest.InForce(instance); other != nil {
		return "", fmt.Errorf("device of Instance %s: Configuration %s/%s has this name", instance, other.Namespace, other.Name)
	}
	if s == nil {
		switch owner := oldest.ResourceOwner(name); {
		case owner == nil:
			return "", fmt.Errorf("device of Instance %s: there is no Configuration %q: apply the Configuration again, or delete the pod", instance, name)
		case owner.Name != name:
			return "", fmt.Errorf("device of Instance %s: Configuration %s/%s has or may have an Instance with the name %s", instance, owner.Namespace, owner.Name, name)
		}
		return fmt.Sprintf("discovery for Configuration %s to start", name), nil
	}
	waitingFor, why := s.missing(hash)
	if _, ok := s.device(hash); ok {
		return "", nil // reported just now
	}
	if why != "" {
		return "", fmt.Errorf("device of Instance %s: %s", instance, why)
	}
	return waitingFor, nil
}

// missing says what is outstanding before devices of the session can be there, or
// why one that is not there does not exist. registry.mu must be held.
func (s *session) missing(hash string) (waitingFor, why string) {
	handler := s.configuration.Spec.DiscoveryHandler.Name
	switch {
	case !s.selected:
		field := "spec.handlerNodeSelector"
		if s.configuration.Spec.Discovery != nil {
			field = "spec.discovery.nodeSelector"
		}
		return "", fmt.Sprintf("%s of Configuration %s does not select this node", field,
			reports.Reference(s.configuration))
	case s.reach != nil:
		return s.reach.missing()
	case s.standing.Settled || s.standing.Had[hash]:
		return "", fmt.Sprintf("discovery handler %q does not see it on this node", handler)
	}
	for _, source := range slices.Sorted(maps.Keys(s.problems)) {
		return "the first report: " + s.problems[source].Message, ""
	}
	return fmt.Sprintf("the first report of discovery handler %q", handler), ""
}
