package dra

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// healthEvery is between two reports to the kubelet, which takes a device's health as unknown after 30 s
// without one.
const healthEvery = 5 * time.Second

// WatchHealthStatus implements kubeletplugin.DRAPlugin: it reports the devices with which ResourceClaims are
// prepared here.
func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	ticker := d.Clock.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		report, changed := d.health()
		select {
		case reports <- report: // also of no device: kubeletplugin takes silence for a fault
		case <-ctx.Done():
			return nil
		}
		select {
		case <-ticker.C():
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// health is what there is to report now, and what is closed when that may have changed.
func (d *Driver) health() (report kubeletplugin.DeviceHealthReport, changed <-chan struct{}) {
	seen, changed := d.Seen.Devices()
	listed := map[string]*v1alpha1.Device{}               // in the node's DeviceSlices
	own, _ := d.Slices.Lister().List(labels.Everything()) // from memory
	for _, s := range own {
		for i := range s.Spec.Devices {
			listed[s.Spec.Devices[i].Instance()] = &s.Spec.Devices[i]
		}
	}
	recorded, _ := d.allRecorded() // describeAgain says of which spec it cannot be read
	reported := map[string]bool{}
	for _, p := range recorded {
		for _, r := range p.Results {
			if reported[r.Pool+" "+r.Instance] {
				continue
			}
			reported[r.Pool+" "+r.Instance] = true
			_, sees := seen[r.Instance]
			state, message := healthOf(d.Node, sees, d.Seen.Gone(r.Instance), listed[r.Instance])
			report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{DeviceName: r.Instance, PoolName: r.Pool,
				Health: state, Message: message, LastUpdated: d.Clock.Now()})
		}
	}
	return report, changed
}

// healthOf is the health of a device that the node sees or not, as far as it knows: gone says that it is
// known not to. listed is the device in the node's DeviceSlices; nil for one that is not there.
func healthOf(node string, seen, gone bool, listed *v1alpha1.Device) (kubeletplugin.HealthStatus, string) {
	switch {
	case gone || listed != nil && listed.Gone:
		return kubeletplugin.HealthStatusUnhealthy, fmt.Sprintf("node %s no longer sees the device", node)
	case listed != nil && listed.Unschedulable:
		return kubeletplugin.HealthStatusUnhealthy, fmt.Sprintf("the discovery handler on node %s does not answer",
			node)
	case !seen:
		return kubeletplugin.HealthStatusUnknown, fmt.Sprintf("node %s does not know yet whether it sees the device",
			node)
	}
	return kubeletplugin.HealthStatusHealthy, ""
}
