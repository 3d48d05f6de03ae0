package view

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// request is what a container asks for, of a resource named without prefix.
type request struct {
	container string
	resource  string
	count     int64
}

// requests are those of the pod, by container in the order of the pod and by name.
func requests(pod *corev1.Pod) []request {
	var all []request
	for c := range containers(pod) {
		var counts map[string]int64
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			for name, quantity := range list {
				if resource, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix); ours {
					if counts == nil {
						counts = map[string]int64{}
					}
					counts[resource] = quantity.Value()
				}
			}
		}
		for _, resource := range slices.Sorted(maps.Keys(counts)) {
			if counts[resource] > 0 {
				all = append(all, request{c.Name, resource, counts[resource]})
			}
		}
	}
	return all
}

// Asks reports whether the pod asks for devices of Kubeslot.
func Asks(pod *corev1.Pod) bool { return len(requests(pod)) > 0 }

// AwaitsNode reports whether the pod waits for a node with devices. Then Pod and Pods need all pods: what they request
// on nodes counts.
func AwaitsNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 && !ended(pod) && Asks(pod)
}

// asked is what the pod requests of slots, as the scheduler reads it: without what DRA serves as extended resources.
func (v *View) asked(pod *corev1.Pod) (*ledger.Request, error) {
	req, err := slotrequest.Of(pod)
	if req == nil {
		return nil, err
	}
	for i := range req.Containers {
		c := &req.Containers[i]
		c.Resources = slices.DeleteFunc(c.Resources,
			func(r ledger.ResourceRequest) bool { return v.servedByDRA(r.Name) })
	}
	return req, nil
}
