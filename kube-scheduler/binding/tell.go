package binding

import (
	"context"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// tell logs, at verbosity 2 as upstream does that a pod is bound, what it was given, a line for each
// container: slots, and devices of device scheduler plugins, each in order.
func (p *parts) tell(ctx context.Context, pod *v1.Pod) {
	logger := klog.FromContext(ctx).V(2)
	if !logger.Enabled() {
		return
	}
	all := maps.Collect(p.info.Containers())
	for _, container := range slices.Sorted(maps.Keys(all)) {
		var slots, devices []string
		for request, from := range all[container].AllocateFrom {
			if strings.HasPrefix(string(request), assignment.ResourcePrefix) {
				slots = append(slots, string(from))
			} else {
				devices = append(devices, string(from))
			}
		}
		if len(slots)+len(devices) == 0 {
			continue
		}
		slices.Sort(slots)
		slices.Sort(devices)
		values := []any{"pod", klog.KObj(pod), "podUID", pod.UID, "container", container, "node", p.info.NodeName}
		if len(slots) > 0 {
			values = append(values, "slots", slots)
		}
		if len(devices) > 0 {
			values = append(values, "devices", devices)
		}
		logger.Info("Assigned devices", values...)
	}
}
