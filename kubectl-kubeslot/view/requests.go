package view

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
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
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
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

// maxSlots is how many slots the scheduler gives to one pod at most.
const maxSlots = 1000

// asked is the pod's request as the ledger takes it. Of one that the scheduler refuses
// for its size ok is false.
func asked(pod *corev1.Pod) (req *ledger.Request, ok bool) {
	req = &ledger.Request{Pod: podKey(pod)}
	rows, total := requests(pod), int64(0)
	for i, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for j := range containers {
			c := ledger.ContainerRequest{Name: containers[j].Name, Role: ledger.App}
			if i == 0 {
				c.Role = ledger.Init
				if policy := containers[j].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
					c.Role = ledger.Sidecar
				}
			}
			for _, r := range rows {
				if r.container == c.Name {
					if total += r.count; r.count > maxSlots || total > maxSlots {
						return nil, false
					}
					c.Resources = append(c.Resources, ledger.ResourceRequest{Name: r.resource, Count: int(r.count)})
				}
			}
			req.Containers = append(req.Containers, c)
		}
	}
	return req, true
}

func podKey(pod *corev1.Pod) ledger.Pod {
	key := ledger.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.Priority != nil {
		key.Priority = *pod.Spec.Priority
	}
	if pod.Spec.NodeName != "" {
		key.Bound = scheduled(pod).Unix()
	}
	return key
}
