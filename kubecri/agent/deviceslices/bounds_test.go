package deviceslices

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A node with more devices than it may report says how many are left out, and what it
// reported before stays.
func TestDevicesBeyondWhatANodeMayReport(t *testing.T) {
	const fit = (v1alpha1.MaxSlices - 1) * v1alpha1.MaxDevices
	ref := v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}
	devices := map[string]reports.Device{}
	for i := range fit + 7 {
		hash := fmt.Sprintf("%06x", i)
		devices[hash] = reports.Device{Device: discovery.Device{ID: fmt.Sprintf("device %05d", i)}, Hash: hash, Shared: true, Size: 200}
	}
	known := Known{Standing: reports.Standing{Devices: devices, Settled: true}}
	v := &view{node: "node-a", owner: v1alpha1.NodeOwner("node-a", "u"), State: State{Complete: true,
		Known: map[v1alpha1.ConfigurationReference]Known{ref: known}}}
	first, then := plan(v)
	told, problems := map[string]bool{}, []v1alpha1.Problem{}
	for _, c := range first {
		for _, d := range c.slice.Spec.Devices {
			told[d.ID] = true
		}
		problems = append(problems, c.slice.Spec.Problems...)
		if !v.isName(c.slice.Name) {
			t.Errorf("slice %s has a name that the policy refuses", c.slice.Name)
		}
	}
	if len(then) > 0 || len(told) != fit || len(first) > v1alpha1.MaxSlices {
		t.Fatalf("%d devices in %d slices are reported, and %d later changes; want %d devices", len(told), len(first), len(then), fit)
	}
	if len(problems) != 1 || problems[0].Reason != "TooManyDevices" || !strings.HasPrefix(problems[0].Message, "7 devices are left out: a node reports at most 100 DeviceSlices") {
		t.Errorf("problems: %v", problems)
	}
	v.slices = apply(v.slices, first...)
	if first, then = plan(v); len(first)+len(then) > 0 {
		t.Errorf("nothing has changed, and %d changes are planned", len(first)+len(then))
	}
}
