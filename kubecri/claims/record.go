package claims

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxEarly is how many Events of Instances wait until the runtime has said what runs here; further
// ones are dropped. Discovery may find as many devices gone at a start.
const maxEarly = 100

// early is an Event of an Instance before its pods are known.
type early struct{ instance, reason, message string }

// RecordEvents writes an Event to each pod, and ResourceClaim, that uses a slot of the Instance here. It
// does not block. Until the runtime has said what runs here, nobody is known to use
// anything: what is recorded earlier is recorded then.
func (c *Claims) RecordEvents(instance, reason, message string) {
	c.mu.Lock()
	known := c.isKnown()
	if !known && len(c.early) < maxEarly {
		c.early = append(c.early, early{instance, reason, message})
	}
	c.mu.Unlock()
	if known {
		c.record(instance, reason, message)
	}
}

// recordEarly writes the Events that waited, now that the runtime has said what runs here.
func (c *Claims) recordEarly() {
	c.mu.Lock()
	all := c.early
	c.early = nil
	c.mu.Unlock()
	for _, e := range all {
		c.record(e.instance, e.reason, e.message)
	}
}

func (c *Claims) record(instance, reason, message string) {
	for _, object := range c.containers.objects(instance) {
		c.config.Events.Event(&object, corev1.EventTypeWarning, reason, message)
	}
}

// objects returns the pods, and the ResourceClaims, that use a slot of the Instance, in order.
func (c *containers) objects(instance string) []corev1.ObjectReference {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []corev1.ObjectReference
	for name := range c.byInstance[instance] {
		for u := range c.bySlot[name] {
			if object := *u.reference(); !slices.Contains(all, object) {
				all = append(all, object)
			}
		}
	}
	slices.SortFunc(all, func(a, b corev1.ObjectReference) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all
}
