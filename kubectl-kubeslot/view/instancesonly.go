package view

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// fromInstances says what a pod waits for to a user who may not list DeviceSlices: by
// what Instances show, each request for itself.
func (v *View) fromInstances(pod *corev1.Pod) []Wait {
	var all []Wait
	for _, r := range requests(pod) {
		if w := v.waitByInstances(r); w.Reason != "" {
			all = append(all, w)
		}
	}
	return all
}

// waitByInstances has no Reason when there are enough slots.
func (v *View) waitByInstances(r request) Wait {
	w := Wait{Source: FromKubeslot, Container: r.container, Resource: r.resource, Count: r.count}
	var candidates []*akriv0.Instance
	distinct := true // each unit of another Instance
	switch c, in := v.configurations[r.resource], v.instances[r.resource]; {
	case c != nil:
		candidates, distinct = v.of[c.Name], c.Spec.Unique() != ""
		if len(candidates) == 0 {
			w.Reason, w.Why = "NoDevice", "no node sees a device of this Configuration"+because(v.problems(c))
			w.Needs = fmt.Sprintf("a node has to find a device: kubectl describe configuration -n %s %s", c.Namespace, c.Name)
			return w
		}
	case in != nil:
		candidates, distinct = []*akriv0.Instance{in}, false
	default:
		w.Reason = "NoSuchResource"
		w.Why, w.Needs = v.noSuch(r.resource)
		return w
	}
	free := map[string]int64{} // by node: slots, or Instances with one
	var all, total int64
	for _, in := range candidates {
		counts := v.counts(in)
		total, w.Holders = total+int64(counts.Slots), append(w.Holders, v.taken(in)...)
		open := int64(counts.Free)
		if distinct {
			open = min(open, 1)
		}
		all += open
		for _, node := range v.nodes(in) {
			free[node] += open
		}
	}
	what := "slots, of which %d are free"
	if distinct {
		what, total = "different devices, of which %d have a free slot", int64(len(candidates))
	}
	best := ""
	for node, n := range free {
		if best == "" || n > free[best] || n == free[best] && node < best {
			best = node
		}
	}
	switch {
	case best == "":
		w.Reason, w.Why, w.Needs, w.Holders = "NotReached", "no node reaches the device", "a node has to find it", nil
	case total < r.count:
		w.Reason, w.Why, w.Holders = "TooFewDevices", fmt.Sprintf("it asks for %d, and there are only %d "+what, r.count, total, all), nil
		w.Needs = "ask for fewer, or have more devices found"
	case all < r.count:
		w.Reason, w.Why = "SlotsHeld", fmt.Sprintf("it asks for %d, and there are %d "+what, r.count, total, all)
		w.Needs = "pods that hold them have to end"
	case free[best] < r.count:
		w.Reason, w.Why = "SlotsHeld", fmt.Sprintf("it asks for %d, and no node reaches more than %d that are free (%s)", r.count, free[best], best)
		w.Needs = "pods that hold them have to end, or one node has to reach more devices"
	default:
		w.Holders = nil // enough are free: something else is in the way
	}
	return w
}
