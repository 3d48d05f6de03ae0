package admit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// due is what a container is to get.
type due struct {
	grants []assignment.Grant
	// requested is how many of each resource it asks for, named as in Grant.
	requested map[string]int64
	// ignored says why it starts without devices that somebody may expect.
	ignored error
}

func (d due) none() bool { return len(d.grants) == 0 && len(d.requested) == 0 }

// sourceAnnotation says where the kubelet has a pod from: "api", or, for a static
// pod, "file" or "http".
const sourceAnnotation = "kubernetes.io/config.source"

// decide says what a container is to get, from the annotations that came with
// the CRI request and, where it is known (not nil), the pod's spec. An error
// means that the container must not start.
//
// No assignment and no spec is no reason to wait: a pod without an assignment
// is held up only when it is known to request devices.
func decide(node string, annotations map[string]string, pod claims.Pod, container string, spec *corev1.Pod) (due, error) {
	if static(annotations) {
		return due{ignored: unassignable(spec, container)}, nil
	}
	grants, requested, err := granted(node, annotations, pod, container)
	if spec == nil {
		if err != nil {
			// The scheduler has made an assignment for this pod.
			return due{}, claims.Refusef("its assignment cannot be used: %v", err)
		}
		return due{grants: grants, requested: requested}, nil
	}
	requested = requests(spec, container)
	switch {
	case err != nil && len(requested) == 0:
		return due{ignored: fmt.Errorf("it requests no devices, and its assignment cannot be used: %w", err)}, nil
	case err != nil:
		return due{}, claims.Refusef("its assignment cannot be used: %v; delete the pod, and its next one is assigned anew", err)
	case grants == nil && len(requested) > 0 && annotations[assignment.HolderAnnotation] != pod.UID:
		return due{}, unassigned(annotations, spec, requested)
	}
	return due{grants: grants, requested: requested}, nil
}

// static reports whether the kubelet has the pod from elsewhere than the API server.
func static(annotations map[string]string) bool {
	source := annotations[sourceAnnotation]
	return source == "file" || source == "http"
}

// unassignable says what a static pod's container requests in vain: the kubelet
// starts it without asking any scheduler, so it cannot have an assignment. It is
// started nevertheless, for nobody could make it one that works.
func unassignable(spec *corev1.Pod, container string) error {
	if spec == nil {
		return nil
	}
	requested := requests(spec, container)
	if len(requested) == 0 {
		return nil
	}
	return fmt.Errorf("it requests %s, but it is of a static pod, to which no scheduler assigns slots; make it an ordinary pod, such as a DaemonSet's",
		resourceNames(requested))
}

// resourceNames lists resources by their full names.
func resourceNames(requested map[string]int64) string {
	names := make([]string, 0, len(requested))
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		names = append(names, assignment.ResourcePrefix+name)
	}
	return strings.Join(names, ", ")
}

// granted returns the slots that the scheduler assigned to a container, and what
// its annotation says that they are for.
func granted(node string, annotations map[string]string, pod claims.Pod, container string) ([]assignment.Grant, map[string]int64, error) {
	info, err := assignment.Granted(annotations, pod.UID, node)
	if err != nil || info == nil {
		return nil, nil, err
	}
	c := info.GetContainerInPod(container)
	if c == nil { // one that requests nothing, or an ephemeral one
		return nil, nil, nil
	}
	grants, err := assignment.Grants(c)
	if err != nil {
		return nil, nil, err
	}
	return grants, ours(c.Requests), nil
}

// ours returns the requests for Configurations and Instances, without prefix.
func ours(list types.ResourceList) map[string]int64 {
	requested := map[string]int64{}
	for name, n := range list {
		if resource, ok := strings.CutPrefix(string(name), assignment.ResourcePrefix); ok && n > 0 {
			requested[resource] = n
		}
	}
	return requested
}

// requests returns what a container's spec asks for. Ephemeral containers cannot
// ask for anything.
func requests(pod *corev1.Pod, container string) map[string]int64 {
	list := types.ResourceList{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name != container {
				continue
			}
			// The API server sets an extended resource's request to its limit.
			for name, quantity := range containers[i].Resources.Requests {
				list[types.ResourceName(name)] = quantity.Value()
			}
		}
	}
	return ours(list)
}

// unassigned says why a container that requests devices was assigned none.
func unassigned(annotations map[string]string, pod *corev1.Pod, requested map[string]int64) error {
	why := fmt.Sprintf("it was bound by scheduler %q, which is not Kubeslot's, or with spec.nodeName", pod.Spec.SchedulerName)
	if holder := annotations[assignment.HolderAnnotation]; holder != "" {
		why = fmt.Sprintf("its annotation %s names another pod's UID, %q", assignment.HolderAnnotation, holder)
	}
	return claims.Refusef("it requests %s, and the scheduler has assigned it no slots: %s. Create the pod again without spec.nodeName, for Kubeslot's scheduler",
		resourceNames(requested), why)
}
