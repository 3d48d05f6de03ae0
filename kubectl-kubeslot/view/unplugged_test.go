package view

import (
	"testing"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A device that was unplugged while two pods have its slots is one problem.
func TestUnpluggedDeviceIsOneProblem(t *testing.T) {
	o := healthy(t)
	second := bound(t, pod("second", "cam", 1), "a", "cam", yard+"-1")
	o.Pods = append(o.Pods, second)
	o.Claims = append(o.Claims, claim(yard+"-1", "a", "second"))
	o.Instances[0].Spec.DeviceUsage[yard+"-1"] = o.Claims[len(o.Claims)-1].Spec.Usage().String()
	o.Instances[0].Status.Problems = []string{"no node sees the device; the Instance stays while its slots are claimed",
		"the claim of slot " + yard + "-0 by node a for pod default/runs does not count: the node does not see the device, and no other does"}
	for i := range o.Slices {
		var devices []v1alpha1.Device
		for _, d := range o.Slices[i].Spec.Devices {
			if d.Instance() == yard {
				d.Gone = true
				if o.Slices[i].Spec.NodeName != "a" {
					continue
				}
			}
			devices = append(devices, d)
		}
		o.Slices[i].Spec.Devices = devices
	}
	if findings := New(o).Examine(now); len(findings) != 1 || findings[0].Object != "instance/default/"+yard {
		t.Errorf("Examine() = %+v, want one of the Instance", findings)
	}
}
