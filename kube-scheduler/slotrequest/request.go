// Package slotrequest reads what a pod requests of slots: the resources akri.sh/… of its
// containers. It keeps no state, and imports little: kubectl-kubeslot asks it, too.
package slotrequest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const (
	// MaxSlots bounds the slots of one pod: far above what containers can use, and so
	// few that choosing them takes a millisecond a node. A slot takes at most 150 bytes of
	// the assignment, so that those of a container fit the 256 KiB which the API server
	// allows for annotations, and leave 100 KiB for others.
	MaxSlots = 1000
	// MaxResources bounds the resources of one pod: for each of them Filter looks at
	// what every node advertises.
	MaxResources = 100
)

// Any reports whether any of the pod's containers asks for slots.
func Any(pod *v1.Pod) bool {
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for _, list := range []v1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name := range list {
					if strings.HasPrefix(string(name), assignment.ResourcePrefix) {
						return true
					}
				}
			}
		}
	}
	return false
}

// PodOf is the pod as the ledger knows it.
func PodOf(pod *v1.Pod) ledger.Pod {
	key := ledger.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Priority: corev1helpers.PodPriority(pod)}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && pod.Spec.NodeName != "" {
			key.Bound = c.LastTransitionTime.Unix()
		}
	}
	return key
}

// Of reads what the pod's containers ask for. Ephemeral containers cannot
// request resources. The result is nil when none asks for slots.
func Of(pod *v1.Pod) (*ledger.Request, error) {
	if !Any(pod) {
		return nil, nil
	}
	req, slots := &ledger.Request{Pod: PodOf(pod)}, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		role := ledger.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			role = ledger.Sidecar
		}
		if err := addContainer(req, c, role, &slots); err != nil {
			return nil, err
		}
	}
	for i := range pod.Spec.Containers {
		if err := addContainer(req, &pod.Spec.Containers[i], ledger.App, &slots); err != nil {
			return nil, err
		}
	}
	switch n := len(Resources(req)); {
	case n == 0:
		return nil, nil // all its requests are for 0
	case n > MaxResources:
		return nil, fmt.Errorf("the pod requests slots of %d resources; %s", n, podLimits)
	}
	return req, nil
}

// podLimits says how much one pod may request.
var podLimits = fmt.Sprintf("a pod may request at most %d slots, of at most %d resources (%s…): split it into several", MaxSlots, MaxResources, assignment.ResourcePrefix)

// addContainer counts the pod's slots, and stops when they are too many: a container
// may name tens of thousands of resources.
func addContainer(req *ledger.Request, c *v1.Container, role ledger.Role, slots *int) error {
	cr := ledger.ContainerRequest{Name: c.Name, Role: role}
	requests := v1.ResourceList{}
	maps.Copy(requests, c.Resources.Limits)
	maps.Copy(requests, c.Resources.Requests)
	for name, q := range requests {
		rest, ours := strings.CutPrefix(string(name), assignment.ResourcePrefix)
		if !ours || q.IsZero() {
			continue
		}
		n := q.Value()
		if q.Sign() < 0 || q.CmpInt64(MaxSlots) > 0 || q.CmpInt64(n) != 0 {
			shown := q.String()
			if q.CmpInt64(n) == 0 {
				shown = strconv.FormatInt(n, 10) // 2000, which a Quantity shows as 2k
			}
			return fmt.Errorf("container %q requests %s of %s: want a whole number from 0 to %d", c.Name, shown, name, MaxSlots)
		}
		if *slots += int(n); *slots > MaxSlots {
			return fmt.Errorf("with container %q the pod requests more than %d slots; %s", c.Name, MaxSlots, podLimits)
		}
		cr.Resources = append(cr.Resources, ledger.ResourceRequest{Name: rest, Count: int(n)})
	}
	if len(cr.Resources) > 0 { // a pod may have tens of thousands of containers
		slices.SortFunc(cr.Resources, func(a, b ledger.ResourceRequest) int { return cmp.Compare(a.Name, b.Name) })
		req.Containers = append(req.Containers, cr)
	}
	return nil
}

// Resources lists the distinct resource names that the pod asks for, in order and
// without the akri.sh/ prefix.
func Resources(req *ledger.Request) []string {
	var names []string
	for i := range req.Containers {
		for _, r := range req.Containers[i].Resources {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Amounts are a pod's requests for slots as the kubelet counts them when it admits the pod.
func Amounts(pod *v1.Pod) map[v1.ResourceName]int64 {
	found := map[v1.ResourceName]int64{}
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if strings.HasPrefix(string(name), assignment.ResourcePrefix) {
			found[name] = q.Value()
		}
	}
	return found
}
