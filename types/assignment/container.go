package assignment

import "github.com/kubeslot/kubeslot/types"

// Container is what the scheduler assigned to a container on its node.
type Container struct {
	// Pod is the pod's assignment, nil when the scheduler made none; Info is the container's part of it,
	// nil when it has none: the container requests nothing, or is an ephemeral one.
	Pod    *types.PodInfo
	Info   *types.ContainerInfo
	Grants []Grant // its slots
}

// OfContainer reads what the scheduler assigned to a container of the pod with the UID on the node.
func OfContainer(annotations map[string]string, podUID, node, container string) (c Container, err error) {
	if c.Pod, err = Granted(annotations, podUID, node); err != nil || c.Pod == nil {
		return Container{}, err
	}
	if c.Info = c.Pod.GetContainerInPod(container); c.Info != nil {
		c.Grants, err = Grants(c.Info)
	}
	return c, err
}

// SourceAnnotation says where the kubelet has a pod from: "api", or, for a static
// pod, "file" or "http".
const SourceAnnotation = "kubernetes.io/config.source"

// Static reports whether the kubelet has the pod from elsewhere than the API server: then no scheduler
// assigns it anything.
func Static(annotations map[string]string) bool {
	source := annotations[SourceAnnotation]
	return source == "file" || source == "http"
}
