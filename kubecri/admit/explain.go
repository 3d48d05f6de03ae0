package admit

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
)

// Explained is what a pod's container is to get.
type Explained struct {
	// Request is what it asks of Claims.
	Request claims.Request
	// Assigned is the pod's assignment when device plugins have a part in what it
	// gives to the container; nil otherwise.
	Assigned *types.PodInfo
	// Ignored says what it will start without, and why; nil for nothing.
	Ignored error
}

// Explain says what the pod's container is to get when it is created on the node,
// or, as an error, why it would be refused before. gives is what
// soplugins.Plugins.Gives says; verifier is the node's, nil for none.
func Explain(node string, pod *corev1.Pod, container string, gives func(types.ResourceName) bool, verifier *signing.Verifier) (Explained, error) {
	request := claims.Request{Container: container,
		Pod: claims.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}}
	e, err := decide(node, pod.Annotations, request.Pod, container, pod, gives, verifier.Verify)
	request.Grants, request.Requested = e.grants, e.requested
	return Explained{Request: request, Assigned: e.assigned, Ignored: e.ignored}, err
}
