package assignment

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ByDRA reports whether the container's request for the extended resource, its full name, is one that
// Kubernetes has made a ResourceClaim of: the resource is a DeviceClass's extendedResourceName. An empty
// container stands for any of the pod. No scheduler of slots assigns anything for it.
func ByDRA(pod *corev1.Pod, container, resource string) bool {
	claim := pod.Status.ExtendedResourceClaimStatus
	return claim != nil && slices.ContainsFunc(claim.RequestMappings,
		func(m corev1.ContainerExtendedResourceRequest) bool {
			return m.ResourceName == resource && (container == "" || m.ContainerName == container)
		})
}
