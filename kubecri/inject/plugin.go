package inject

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubeslot/kubeslot/discovery"
)

// Answer is what a device plugin gives a container. Who makes one has checked that
// each part is usable by itself; here they are put together.
type Answer struct {
	// Plugin is the plugin's name, for messages.
	Plugin string
	Mounts []discovery.Mount
	// Devices are paths of device nodes, in the container as on the host.
	Devices []string
	// CDI are fully qualified names of CDI devices.
	CDI []string
	Env map[string]string
}

// Empty reports whether it gives nothing.
func (a *Answer) Empty() bool {
	return len(a.Mounts) == 0 && len(a.Devices) == 0 && len(a.CDI) == 0 && len(a.Env) == 0
}

func (a *Answer) owner() string { return fmt.Sprintf("device plugin %q", a.Plugin) }

// variables returns those of the answers: in their order, those of each by name.
// They win over the container's own, for they may say what it is allowed to use
// (NVIDIA_VISIBLE_DEVICES), and over the properties of slots' devices, which may
// be anybody's. Two plugins that set one differently are an error.
func variables(answers []Answer) ([]Variable, error) {
	var all []Variable
	by := map[string]int{} // index of the answer
	for i, a := range answers {
		for _, name := range slices.Sorted(maps.Keys(a.Env)) {
			before, set := by[name]
			if !set {
				by[name] = i
				all = append(all, Variable{name, a.Env[name]})
			} else if answers[before].Env[name] != a.Env[name] {
				return nil, fmt.Errorf("%s and %s both set the variable %s of the container, differently: give the container devices of only one of them",
					answers[before].owner(), a.owner(), name)
			}
		}
	}
	return all, nil
}
