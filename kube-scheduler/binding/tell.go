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

// given is what the plugins gave to one container.
type given struct{ slots, devices []string }

// tell logs what a pod that is bound now was given, a line for each container.
func (p *parts) tell(ctx context.Context, pod *v1.Pod) {
	all := p.given()
	for _, container := range slices.Sorted(maps.Keys(all)) {
		g := all[container]
		values := []any{"pod", klog.KObj(pod), "podUID", pod.UID, "container", container, "node", p.node}
		if len(g.slots) > 0 {
			values = append(values, "slots", g.slots)
		}
		if len(g.devices) > 0 {
			values = append(values, "devices", g.devices)
		}
		klog.FromContext(ctx).Info("Assigned devices", values...)
	}
}

// given is what the containers were given, by name: slots, and devices of device
// scheduler plugins, each in order.
func (p *parts) given() map[string]given {
	all := map[string]given{}
	for _, plugin := range p.by {
		for name, c := range plugin.part.Containers() {
			g := all[name]
			for request, from := range c.AllocateFrom {
				if strings.HasPrefix(string(request), assignment.ResourcePrefix) {
					g.slots = append(g.slots, string(from))
				} else {
					g.devices = append(g.devices, string(from))
				}
			}
			if len(g.slots)+len(g.devices) > 0 {
				slices.Sort(g.slots)
				slices.Sort(g.devices)
				all[name] = g
			}
		}
	}
	return all
}
