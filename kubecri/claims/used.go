package claims

import (
	"errors"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Use is how a slot is used by a container, or held by a claim.
type Use struct {
	Level v1alpha1.Level
	// Holder is who holds the slot: a pod's UID or an id of the kubelet's, and at InstanceLevel the slot's
	// name.
	Holder string
}

// useOf is how the claim holds its slot.
func useOf(c *v1alpha1.SlotClaim) Use { return Use{c.Spec.Level, c.Spec.Holder} }

// Used returns the slots that a container uses, by its annotations. What the error names is passed over.
func Used(annotations map[string]string) (map[slot.Name]Use, error) {
	used := map[slot.Name]Use{}
	var errs []error
	for key, value := range annotations {
		name, holder, ok, err := slot.ParseAnnotation(key, value)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ok && holder == "":
			used[name] = Use{v1alpha1.InstanceLevel, name.String()}
		case ok:
			used[name] = Use{v1alpha1.ConfigurationLevel, holder}
		}
	}
	return used, errors.Join(errs...)
}
