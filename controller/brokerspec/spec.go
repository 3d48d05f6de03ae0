// Package brokerspec reads what a Configuration says of its brokers and their Services, for those who check it
// and those who make Pods, Jobs and Services of it.
package brokerspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kjson "sigs.k8s.io/json"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Placeholder stands in a broker's spec for the resource of the Instance that the broker is for.
const Placeholder = corev1.ResourceName("{{PLACEHOLDER}}")

// Decode reads a spec, and says which of its fields are unknown, mistyped or twice there: a misspelt field would
// be dropped unseen.
func Decode(path string, raw []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%s: %w", path, errors.Join(unknown...))
	}
	return nil
}

// Canonical is what was decoded, as JSON whose keys are sorted, so that only its meaning counts.
func Canonical(raw []byte) string {
	var v any
	_ = json.Unmarshal(raw, &v) // as Decode did
	text, _ := json.Marshal(v)  // what was JSON marshals
	return string(text)
}

// CheckNode says what is wrong with what a pod's spec, which is at the path, says of its node: a node that is named
// would get the pod of every other, and an affinity that cannot be read matches none, unseen. The error is a
// *field.Error, or has some.
func CheckNode(path *field.Path, p *corev1.PodSpec) error {
	if p.NodeName != "" {
		return field.Forbidden(path.Child("nodeName"), "the controller chooses the node; use nodeSelector or affinity")
	}
	if p.Affinity == nil || p.Affinity.NodeAffinity == nil {
		return nil
	}
	required := p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return nil
	}
	path = path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(path))
	return err
}

// PodClaim is what a broker pod calls its ResourceClaim for slots, with allocator DRA.
const PodClaim = "kubeslot"

// CheckClaims says whether a pod's spec, which is at the path, has a ResourceClaim of that name, whatever gives slots
// now: the pod would have two of the name with allocator DRA. The error is a *field.Error.
func CheckClaims(path *field.Path, p *corev1.PodSpec) error {
	for i := range p.ResourceClaims {
		if p.ResourceClaims[i].Name == PodClaim {
			return field.Invalid(path.Child("resourceClaims").Index(i).Child("name"), PodClaim,
				"the controller calls the claim for slots so, with allocator DRA: give this one another name")
		}
	}
	return nil
}

// Containers are those of a pod, the init containers first.
func Containers(p *corev1.PodSpec) []*corev1.Container {
	var all []*corev1.Container
	for i := range p.InitContainers {
		all = append(all, &p.InitContainers[i])
	}
	for i := range p.Containers {
		all = append(all, &p.Containers[i])
	}
	return all
}

// AsksForDevice reports whether a container requests the device of the Instance, or any other of akri.sh.
func AsksForDevice(p *corev1.PodSpec) bool {
	for _, c := range Containers(p) {
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			for name := range list {
				if name == Placeholder || strings.HasPrefix(string(name), akriv0.GroupName+"/") {
					return true
				}
			}
		}
	}
	return false
}

// Slots is how many slots of its Instance a container takes.
func Slots(c *corev1.Container) int64 {
	q, ok := c.Resources.Limits[Placeholder]
	if !ok {
		q = c.Resources.Requests[Placeholder]
	}
	return max(0, min(q.Value(), 1<<32)) // sums of which do not overflow
}

// PodSlots is how many slots of its Instance a pod takes at once. An init container runs alone, but for the sidecars
// before it.
func PodSlots(p *corev1.PodSpec) int64 {
	var running, most int64
	for i := range p.InitContainers {
		c := &p.InitContainers[i]
		most = max(most, running+Slots(c))
		if IsSidecar(c) {
			running += Slots(c)
		}
	}
	for i := range p.Containers {
		running += Slots(&p.Containers[i])
	}
	return max(most, running)
}

// IsSidecar reports whether an init container runs on while the containers do.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
