package v0

import (
	"errors"
	"fmt"
)

// Report is what decides whether a node's report of a device may count. Scheduler and controller
// decide by it alike. Of several devices whose Instances would have one name, see
// kubeslot.io/v1alpha1's Contender.
//
// +k8s:deepcopy-gen=false
type Report struct {
	// Namespace is that of the Configuration that the device was found for.
	Namespace string
	// HashDigits are those of the device's hash.
	HashDigits int
	Shared     bool
	// Selected is true when spec.discovery selects the node. It matters where the Configuration has
	// one.
	Selected bool
	// Namesake is the Configuration that has the name of the device's Instance; nil for none.
	Namesake *Configuration
}

// Refuses returns why a report for the Configuration of its name that is in force does not count,
// whatever other nodes report; nil when it may. The Configuration may be nil: there is none.
func (c *Configuration) Refuses(r Report) error {
	switch {
	case c == nil:
		return errors.New("there is no such Configuration")
	case r.Namespace != c.Namespace:
		return fmt.Errorf("it is for Configuration %s/%s, but %s/%s has the name",
			r.Namespace, c.Name, c.Namespace, c.Name)
	case r.HashDigits != c.Spec.HashDigits():
		return fmt.Errorf("its hash has %d digits, and instanceNameDigits of its Configuration is %d",
			r.HashDigits, c.Spec.HashDigits())
	case r.Namesake != nil:
		return fmt.Errorf("Configuration %s/%s is older, and has the name of its Instance: "+
			"to use the device, rename one of the Configurations", r.Namesake.Namespace, r.Namesake.Name)
	case c.Spec.Discovery == nil:
		return nil
	case !r.Shared:
		return errors.New("it is not shared, as spec.discovery of its Configuration demands")
	case !r.Selected:
		return errors.New("spec.discovery of its Configuration does not select the node")
	}
	return nil
}

// Selects reports whether a node with the labels reaches the devices.
func (d *Discovery) Selects(labels map[string]string) bool {
	for key, want := range d.NodeSelector {
		if got, found := labels[key]; !found || got != want {
			return false
		}
	}
	return true
}
