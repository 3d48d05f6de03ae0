package assignment

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Held returns the slots of a bound pod's containers, by container: those that the
// annotation gives them and that they request, which are those that the node creates
// a container with. A container that is given more than it requests has none, as
// the error says, and so has one that cannot be read; what is given to a container
// that the pod does not have is nobody's.
func Held(pod *corev1.Pod) (map[string][]Grant, error) {
	info, err := Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil || info == nil {
		return nil, err
	}
	held := map[string][]Grant{}
	var refused []error
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			given := info.GetContainerInPod(c.Name)
			if given == nil {
				continue
			}
			grants, err := Grants(given)
			if err == nil {
				err = CheckSurplus(grants, requested(c))
			}
			switch {
			case err != nil:
				refused = append(refused, fmt.Errorf("container %q: %w", c.Name, err))
			case len(grants) > 0:
				held[c.Name] = grants
			}
		}
	}
	return held, errors.Join(refused...)
}

// CheckSurplus reports grants of more slots than a container requests of a resource,
// which requested has by the name in Grant.Resource.
func CheckSurplus(grants []Grant, requested map[string]int64) error {
	granted := map[string]int64{}
	for _, g := range grants {
		granted[g.Resource]++
	}
	for _, g := range grants {
		if n, want := granted[g.Resource], requested[g.Resource]; n > want {
			return fmt.Errorf("%d slots of %s%s are assigned, and the container requests %d", n, ResourcePrefix, g.Resource, want)
		}
	}
	return nil
}

// requested returns how many slots of each resource a container asks for, named as
// in Grant.Resource.
func requested(c *corev1.Container) map[string]int64 {
	counts := map[string]int64{}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} { // a request counts before a limit
		for name, quantity := range list {
			if resource, ours := strings.CutPrefix(string(name), ResourcePrefix); ours {
				counts[resource] = quantity.Value()
			}
		}
	}
	return counts
}
