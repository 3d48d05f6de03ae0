package claims

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Pod identifies a pod. Two pods of one name, one after the other, have
// different UIDs.
type Pod struct {
	Namespace, Name, UID string
}

// PodOf returns the pod of a container or of a sandbox, by its labels.
func PodOf(labels map[string]string) Pod {
	return Pod{kubelettypes.GetPodNamespace(labels), kubelettypes.GetPodName(labels), kubelettypes.GetPodUID(labels)}
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Reference is the pod as the object of an Event.
func (p Pod) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name,
		UID: types.UID(p.UID)}
}

// user is a container, or a ResourceClaim that is prepared, and the slots that it uses. A container's id is ""
// while it is being created.
type user struct {
	id      string
	sandbox string
	pod     Pod
	name    string
	claim   *v1alpha1.ResourceClaimReference // nil for a container; without pod and name otherwise
	slots   map[slot.Name]Use
	born    uint64 // event at which it was entered or got its id
	exited  bool   // when the runtime was asked last
	// stopping is true while this process stops it, and ended once it has, or was found ended: it does
	// not run, cannot start again, and uses no slot (stop.go).
	stopping, ended bool
}

// String is who it is, for people.
func (u *user) String() string {
	if u.claim != nil {
		return "ResourceClaim " + u.claim.Namespace + "/" + u.claim.Name
	}
	return fmt.Sprintf("container %q of pod %s", u.name, u.pod)
}

// logged is who it is, as the log has it.
func (u *user) logged() []any {
	if u.claim != nil {
		return []any{"resourceClaim", klog.KRef(u.claim.Namespace, u.claim.Name)}
	}
	return []any{"pod", klog.KRef(u.pod.Namespace, u.pod.Name), "container", u.name}
}

// reference is the object of its Events.
func (u *user) reference() *corev1.ObjectReference {
	if u.claim == nil {
		return u.pod.Reference()
	}
	return &corev1.ObjectReference{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1",
		Namespace: u.claim.Namespace, Name: u.claim.Name, UID: u.claim.UID}
}
