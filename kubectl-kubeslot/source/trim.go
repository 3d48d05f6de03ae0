package source

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// keptAnnotations are those that a view reads, besides those that begin with view.RequiredPlugins.
var keptAnnotations = []string{assignment.Annotation, assignment.HolderAnnotation, assignment.SourceAnnotation}

// trim drops what no view reads, to save memory: there may be 50,000 pods.
func trim(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		trimPod(o)
	case *resourceapi.ResourceClaim:
		if !view.Ours(o) {
			o.Spec, o.Status = resourceapi.ResourceClaimSpec{}, resourceapi.ResourceClaimStatus{}
		}
	case *corev1.Node:
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
	}
	return object, nil
}

func trimPod(pod *corev1.Pod) {
	kept := map[string]string{}
	for key, value := range pod.Annotations {
		if slices.Contains(keptAnnotations, key) || strings.HasPrefix(key, view.RequiredPlugins) {
			kept[key] = value
		}
	}
	pod.Annotations = kept
	pod.Spec.Volumes, pod.Spec.EphemeralContainers, pod.Spec.DNSConfig, pod.Spec.HostAliases = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			containers[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
}
