package agent

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Reasons of the Events of pods whose containers use a device.
const (
	// reasonChanged: containers have what the device was when they were created.
	reasonChanged = "DeviceChanged"
	// reasonGone: this node no longer sees the device.
	reasonGone = "DeviceGone"
)

// notification is what pods that use an Instance's device are to know of it.
type notification struct{ instance, reason, message string }

// another is the notification that a device is other than it was.
func (a *Agent) another(configuration, hash string, what []string) notification {
	instance := slot.InstanceName(configuration, hash)
	return notification{instance, reasonChanged, fmt.Sprintf(
		"The device of Instance %s has changed on node %s: %s. Containers have it as it was when they were created; a new pod gets it as it is now.",
		instance, a.config.NodeName, strings.Join(what, ", "))}
}

// gone is the notification that a device is not there any more.
func (a *Agent) gone(configuration, hash string) notification {
	instance := slot.InstanceName(configuration, hash)
	return notification{instance, reasonGone, fmt.Sprintf(
		"Node %s no longer sees the device of Instance %s: containers that use it may fail.", a.config.NodeName, instance)}
}

// notifyHolders notifies the pods here that use one of the Instances, if there are any.
func (a *Agent) notifyHolders(configuration string, all []notification) {
	if len(all) == 0 {
		return
	}
	holds := func(string) bool { return true }
	if a.config.Held != nil {
		if held, known := a.config.Held(); known {
			holds = func(instance string) bool { return held[instance] }
		}
	}
	for _, n := range all {
		if holds(n.instance) {
			a.notices.add(noticeKind{configuration, n.instance, n.reason}, func(times int) {
				a.config.NotifyHolders(n.instance, n.reason, n.message+repeated(times))
			})
		}
	}
}

// notifications compares what is known of this node's devices with what was. With spec.discovery
// the devices are other nodes' as well: see sliceChanged. registry.mu must be held.
func (a *Agent) notifications(s *session, was *reports.Standing) []notification {
	if s.reach != nil {
		return nil
	}
	name := s.configuration.Name
	var all []notification
	for hash, before := range was.Devices {
		now, ok := s.standing.Devices[hash]
		if !ok {
			all = append(all, a.gone(name, hash))
		} else if what := before.Differences(&now); len(what) > 0 {
			all = append(all, a.another(name, hash, what))
		}
	}
	if !was.Settled {
		// What a former life of the agent reported is in the slices, without paths.
		for d := range a.written(s.configuration) {
			if _, ok := was.Devices[d.Hash]; ok || was.Age(d.Hash, d.Shared) == reports.Withdrawn {
				continue // as above, or recorded before
			}
			before := reports.Device{}
			before.Properties = d.Properties
			now, ok := s.standing.Devices[d.Hash]
			if ok {
				now.Mounts, now.DeviceSpecs = nil, nil
				if what := before.Differences(&now); len(what) > 0 {
					all = append(all, a.another(name, d.Hash, what))
				}
			} else if !d.Gone && s.standing.Age(d.Hash, d.Shared) == reports.Withdrawn {
				all = append(all, a.gone(name, d.Hash))
			}
		}
	}
	slices.SortFunc(all, func(a, b notification) int { return cmp.Compare(a.instance, b.instance) })
	return all
}

// before are the devices that this node's slices have of the Configuration as a handler reported them,
// those first that have gone.
func (a *Agent) before(c *v0.Configuration) []discovery.Device {
	var gone, there []discovery.Device
	for d := range a.written(c) {
		device := discovery.Device{ID: d.ID, Properties: d.Properties}
		if d.Gone {
			gone = append(gone, device)
		} else {
			there = append(there, device)
		}
	}
	return append(gone, there...)
}

// written are the devices that this node's slices have of the Configuration.
func (a *Agent) written(c *v0.Configuration) iter.Seq[*v1alpha1.Device] {
	ref := reports.Reference(c)
	return func(yield func(*v1alpha1.Device) bool) {
		for _, slice := range a.writer.Own() {
			for i := range slice.Spec.Devices {
				if d := &slice.Spec.Devices[i]; d.Configuration == ref && !yield(d) {
					return
				}
			}
		}
	}
}
