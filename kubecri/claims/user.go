package claims

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

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

// user is a container and the slots that it uses. Its id is "" while it is
// being created.
type user struct {
	id      string
	sandbox string
	pod     Pod
	name    string
	slots   map[slot.Name]Use
	born    uint64 // event at which it was entered or got its id
	exited  bool   // when the runtime was asked last
	// stopping is true while this process stops it, and ended once it has, or was found ended: it does
	// not run, cannot start again, and uses no slot (stop.go).
	stopping, ended bool
}
