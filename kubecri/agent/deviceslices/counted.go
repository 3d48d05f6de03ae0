package deviceslices

import (
	"iter"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Counted are the devices in a node's own slices of which it gives slots, with the Configurations that
// own them. Those with spec.discovery are not among them: what any node lists counts there. A device in
// two slices is there twice.
func Counted(node string, slices []*v1alpha1.DeviceSlice, oldest v0.Oldest,
) iter.Seq2[*v0.Configuration, *v1alpha1.Device] {
	return func(yield func(*v0.Configuration, *v1alpha1.Device) bool) {
		for _, s := range slices {
			for i := range s.Spec.Devices {
				d := &s.Spec.Devices[i]
				c := oldest.ResourceOwner(d.Instance())
				if s.Spec.NodeName != node || c == nil || c.Spec.Discovery != nil ||
					!d.CountsFor(reports.Reference(c), c.Spec.HashDigits(), node) {
					continue
				}
				if !yield(c, d) {
					return
				}
			}
		}
	}
}
