package informer

import v1 "k8s.io/api/core/v1"

// TrimPod drops from a bound pod what containers are started with, for which no plugin of the scheduler asks: there
// are tens of thousands of such pods in its cache. It is to transform what the pods' informer gets, in the place of
// upstream's transform, which drops the managed fields of all pods.
func TrimPod(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	if pod.Spec.NodeName == "" {
		return pod, nil
	}
	trim := func(c *v1.Container) {
		c.Command, c.Args, c.Env, c.EnvFrom, c.VolumeMounts = nil, nil, nil, nil, nil
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
	return pod, nil
}
