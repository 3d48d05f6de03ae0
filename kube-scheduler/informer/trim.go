package informer

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim drops from an object what no plugin of the scheduler asks for: there are tens of thousands in its caches. That
// is what fields have which managers and, of a bound pod, what containers are started with. It is to transform what
// an informer gets, that of pods in the place of upstream's transform, which drops their managed fields alone.
func Trim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		trimBound(pod)
	}
	return obj, nil
}

func trimBound(pod *v1.Pod) {
	pod.Spec.SecurityContext = nil
	trim := func(c *v1.Container) {
		c.Command, c.Args, c.Env, c.EnvFrom, c.VolumeMounts, c.SecurityContext = nil, nil, nil, nil, nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
	}
	for i := range pod.Spec.InitContainers {
		trim(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		trim(&pod.Spec.Containers[i])
	}
	// Volumes of other kinds may bind a pod to its node, or keep others from it.
	var volumes []v1.Volume
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil && v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}
