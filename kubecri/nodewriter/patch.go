package nodewriter

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Patch is a strategic merge patch of the Node's status subresource. A nil value is removed.
type Patch struct {
	Metadata Metadata `json:"metadata,omitzero"`
	Status   Status   `json:"status,omitzero"`
}

// Metadata is what a Patch has of the Node's.
type Metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// Say returns what makes labels or annotations say what is wanted; "" takes a key away.
func Say(has, want map[string]string) map[string]*string {
	change := map[string]*string{}
	for key, value := range want {
		switch is, there := has[key]; {
		case value != "" && is != value:
			change[key] = &value
		case value == "" && there:
			change[key] = nil
		}
	}
	return change
}

// Status is what a Patch has of the Node's.
type Status struct {
	Capacity    Quantities `json:"capacity,omitempty"`
	Allocatable Quantities `json:"allocatable,omitempty"`
	// Conditions are corev1.NodeConditions, and directives of the patch.
	Conditions []any `json:"conditions,omitempty"`
}

// Quantities are amounts of resources.
type Quantities map[corev1.ResourceName]*resource.Quantity

// IsZero reports whether there is nothing to change; encoding/json asks it too.
func (p Patch) IsZero() bool { return p.Metadata.IsZero() && p.Status.IsZero() }

// IsZero reports whether there is nothing to change.
func (m Metadata) IsZero() bool { return len(m.Labels)+len(m.Annotations) == 0 }

// IsZero reports whether there is nothing to change.
func (s Status) IsZero() bool { return len(s.Capacity)+len(s.Allocatable)+len(s.Conditions) == 0 }

// advertises reports whether the patch changes what the node has for pods.
func (p Patch) advertises() bool { return len(p.Status.Capacity)+len(p.Status.Allocatable) > 0 }

// with returns both patches in one. Parts do not change the same things.
func (p Patch) with(q Patch) Patch {
	return Patch{
		Metadata{union(p.Metadata.Labels, q.Metadata.Labels), union(p.Metadata.Annotations, q.Metadata.Annotations)},
		Status{union(p.Status.Capacity, q.Status.Capacity), union(p.Status.Allocatable, q.Status.Allocatable),
			append(p.Status.Conditions[:len(p.Status.Conditions):len(p.Status.Conditions)], q.Status.Conditions...)},
	}
}

func union[M ~map[K]V, K comparable, V any](a, b M) M {
	both := maps.Clone(a)
	if both == nil {
		both = M{}
	}
	maps.Copy(both, b)
	return both
}
