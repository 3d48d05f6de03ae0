package claims

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RecordEvents writes an Event to each pod whose containers use a slot of the Instance here. It
// does not block. Until the runtime has said what runs here, nobody is known to use
// anything: what is recorded earlier is recorded then.
func (c *Claims) RecordEvents(instance, reason, message string) {
	select {
	case <-c.known:
		c.record(instance, reason, message)
	default:
		go func() {
			<-c.known
			c.record(instance, reason, message)
		}()
	}
}

func (c *Claims) record(instance, reason, message string) {
	for _, pod := range c.containers.pods(instance) {
		c.config.Events.Event(podReference(pod), corev1.EventTypeWarning, reason, message)
	}
}

// podReference is the pod as the object of an Event.
func podReference(pod Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}
}

// pods returns those whose containers use a slot of the Instance, in order.
func (c *containers) pods(instance string) []Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []Pod
	for name, users := range c.bySlot {
		if name.Instance != instance {
			continue
		}
		for u := range users {
			if !slices.Contains(pods, u.pod) {
				pods = append(pods, u.pod)
			}
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods
}
