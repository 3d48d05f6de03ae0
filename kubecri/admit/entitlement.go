package admit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// entitlement is what a container is to get.
type entitlement struct {
	grants []assignment.Grant
	// requested is how many of each resource it asks for, named as in Grant.
	requested map[string]int64
	// assigned is the pod's assignment when device plugins have a part in what it
	// gives to this container; nil otherwise.
	assigned *types.PodInfo
	// ignored says why it starts without devices that somebody may expect.
	ignored error
}

func (e entitlement) none() bool {
	return len(e.grants) == 0 && len(e.requested) == 0 && e.assigned == nil
}

// verify says whether an assignment to the pod with the UID on the node was signed by
// a trusted scheduler: (*signing.Verifier).Verify.
type verify = func(annotations map[string]string, podUID, node string) error

// decide says what a container is to get, from the annotations that came with
// the CRI request and, where it is known (not nil), the pod's spec. An error
// means that the container must not start.
//
// An assignment that verify does not take is as bad as one that cannot be read.
//
// No assignment and no spec is no reason to wait: a pod without an assignment
// is held up only when it is known to request devices.
func decide(node string, annotations map[string]string, pod claims.Pod, container string, spec *corev1.Pod, gives gives, verify verify) (entitlement, error) {
	asked := plugged(annotations, spec, container, gives)
	if assignment.Static(annotations) {
		return entitlement{ignored: unassignable(spec, container, asked)}, nil
	}
	of, err := assignment.OfContainer(annotations, pod.UID, node, container)
	if err != nil {
		// The scheduler has made one for this pod: who knows for which container.
		return entitlement{}, claims.Refusef("its assignment cannot be used: %v; delete the pod, and its next one is assigned anew", err)
	}
	var e entitlement
	if of.Pod != nil {
		if err := verify(annotations, pod.UID, node); err != nil {
			return entitlement{}, claims.Refusef("its assignment was not signed by a scheduler that this node trusts: %v; compare the scheduler's --assignment-signing-key-file with --assignment-public-keys-file of this node, then delete the pod, and its next one is assigned anew", err)
		}
	}
	if c := of.Info; c != nil { // not one that requests nothing, or an ephemeral one
		e = entitlement{grants: of.Grants, requested: ours(c.Requests)}
		if soplugins.Concerns(c) {
			e.assigned = ofPod(of.Pod, pod, spec)
		}
	}
	if spec != nil {
		e.requested = requests(spec, container)
	}
	switch {
	case of.Pod == nil && len(e.requested)+len(asked) > 0:
		return entitlement{}, unassigned(annotations, spec, e.requested, asked)
	case e.assigned == nil && len(asked) > 0:
		return entitlement{}, claims.Refusef("it requests %s, of which a device plugin of this node gives out devices, and the scheduler has assigned it none: does the scheduler have its half of the plugin (--devschedpath)?",
			names(nil, asked))
	}
	return e, nil
}

// unassignable says what a static pod's container requests in vain: the kubelet
// starts it without asking any scheduler, so it cannot have an assignment. It is
// started nevertheless, for nobody could make it one that works.
func unassignable(spec *corev1.Pod, container string, asked []types.ResourceName) error {
	requested := map[string]int64{}
	if spec != nil {
		requested = requests(spec, container)
	}
	if len(requested)+len(asked) == 0 {
		return nil
	}
	return fmt.Errorf("it requests %s, but it is of a static pod, to which no scheduler assigns devices; make it an ordinary pod, such as a DaemonSet's",
		names(requested, asked))
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

// requests returns the slots that a container's spec asks for. DRA gives what it has made a ResourceClaim of.
func requests(pod *corev1.Pod, container string) map[string]int64 {
	all := ours(specRequests(pod, container))
	maps.DeleteFunc(all, func(resource string, _ int64) bool {
		return assignment.ByDRA(pod, container, assignment.ResourcePrefix+resource)
	})
	return all
}

// allocatedByDRA is err, or what to do instead for a container that requests as slots what DRA allocates. dra
// reports whether that are a Configuration's devices.
func allocatedByDRA(err error, requested map[string]int64, dra func(configuration string) bool) error {
	for _, resource := range slices.Sorted(maps.Keys(requested)) {
		for _, configuration := range []string{resource, v1alpha1.DeviceConfiguration(resource)} {
			if dra(configuration) {
				return claims.Refusef("it requests %s%s, which DRA gives (allocatedByDRA): request it with a "+
					"ResourceClaim of DeviceClass %s", assignment.ResourcePrefix, resource,
					v1alpha1.DeviceClassName(configuration))
			}
		}
	}
	return err
}

// specRequests returns what a container's spec asks for. Ephemeral containers
// cannot ask for anything.
func specRequests(pod *corev1.Pod, container string) types.ResourceList {
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
	return list
}

// unassigned says why a container that requests devices was assigned none. The
// spec may not be known.
func unassigned(annotations map[string]string, spec *corev1.Pod, requested map[string]int64, asked []types.ResourceName) error {
	why := "it was bound with spec.nodeName, or by a scheduler without Kubeslot's plugins"
	if spec != nil {
		why = fmt.Sprintf("it was bound with spec.nodeName, or by scheduler %q without Kubeslot's plugins", spec.Spec.SchedulerName)
	}
	if holder := annotations[assignment.HolderAnnotation]; holder != "" {
		why = fmt.Sprintf("its annotation %s names another pod's UID, %.64q", assignment.HolderAnnotation, holder)
	}
	what := "slots"
	if len(asked) > 0 {
		what = "devices"
	}
	return claims.Refusef("it requests %s, and the scheduler has assigned it no %s: %s. Create the pod again without spec.nodeName, for Kubeslot's scheduler",
		names(requested, asked), what, why)
}
