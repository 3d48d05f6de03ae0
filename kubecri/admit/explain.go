package admit

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
)

// Explain says what the pod's container asks of Claims when it is created on the
// node, or, as an error, why it would be refused before. What it
// will start without, and why, is returned as ignored.
func Explain(node string, pod *corev1.Pod, container string) (request claims.Request, ignored, err error) {
	request = claims.Request{Container: container,
		Pod: claims.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}}
	d, err := decide(node, pod.Annotations, request.Pod, container, pod)
	request.Grants, request.Requested = d.grants, d.requested
	return request, d.ignored, err
}
