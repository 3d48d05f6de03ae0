package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

// SlotEdits returns what the grants bring, those of each slot in the order of the
// grants, and last the list of them all. resource is set where the kubelet merges what
// several resources bring: the Configuration or the Instance that was requested. See
// Additions.AllocateResponse.
//
// The variables are, for each property K of each device, K_<HASH>, and K for the first
// device that has it, unless it is withheld. They are defaults: what a pod's author
// wrote has precedence over what a device reports, as it has with the kubelet's device
// plugins (GenerateRunContainerOptions), and so has what device plugins give. The list
// is always ours. One that no process could have is an error, and so is a mount or device
// node at a place of the container that no device may take.
func SlotEdits(resource string, grants []Grant) ([]Edits, error) {
	if len(grants) == 0 {
		return nil, nil
	}
	// The names with a hash are the exact ones: one device's plain K must not
	// take the name of another's K_<HASH>.
	exact := map[string]bool{ListName(resource): true} // only the list itself may have its name
	for _, g := range grants {
		for name := range g.Device.Properties {
			exact[exactName(name, g)] = true
		}
	}
	all := make([]Edits, 0, len(grants)+1)
	devices := make([]listed, 0, len(grants))
	for _, g := range grants {
		key, value := slot.Annotation(g.Slot, g.Holder)
		e := Edits{Owner: SlotOwner(g.Slot), Mounts: g.Device.Mounts, Devices: g.Device.DeviceSpecs, ByCDI: g.CDI != "",
			Annotations: map[string]string{key: value}}
		if err := checkPaths(g.Device); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Owner, err)
		}
		if g.CDI != "" {
			e.CDI = []string{g.CDI}
		}
		set := func(name, value string) {
			if settable(name, value) {
				e.Env = append(e.Env, Variable{Name: name, Value: value, Default: true})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g.Device.Properties)) {
			if !exact[name] && g.variable(name) && resource == "" {
				set(name, g.Device.Properties[name])
			}
			set(exactName(name, g), g.Device.Properties[name])
		}
		properties := g.Device.Properties
		if properties == nil {
			properties = map[string]string{}
		}
		devices = append(devices, listed{Instance: g.Slot.Instance, Slot: g.Slot.String(), Properties: properties})
		all = append(all, e)
	}
	list, err := list(ListName(resource), devices)
	return append(all, Edits{Owner: "kubecri", Env: []Variable{list}}), err
}

func checkPaths(device discovery.Device) error {
	for _, m := range device.Mounts {
		if err := discovery.CheckContainerPath(m.ContainerPath); err != nil {
			return fmt.Errorf("mount of %.64q: %w", m.HostPath, err)
		}
	}
	for _, d := range device.DeviceSpecs {
		if err := discovery.CheckContainerPath(d.ContainerPath); err != nil {
			return fmt.Errorf("device node %.64q: %w", d.HostPath, err)
		}
	}
	return nil
}

// ListName is the name of the variable that lists the devices: with the resource's
// name where the kubelet merges what several resources bring. A ResourceClaim's requests have both: their
// names stand for the resource's.
func ListName(resource string) string {
	if resource == "" {
		return DevicesEnv
	}
	return DevicesEnv + "_" + strings.ToUpper(strings.ReplaceAll(resource, "-", "_"))
}

// listed is a device in DevicesEnv.
type listed struct {
	Instance   string            `json:"instance"`
	Slot       string            `json:"slot"`
	Properties map[string]string `json:"properties"`
}

func list(name string, devices []listed) (Variable, error) {
	text, err := json.Marshal(devices)
	if err != nil {
		return Variable{}, fmt.Errorf("encode %s: %w", name, err)
	}
	if n := len(name) + len("=\x00") + len(text); n > MaxEnvBytes {
		return Variable{}, fmt.Errorf("the properties of its %d devices take %d bytes in the variable %s, and Linux starts no process with one of more than %d: request fewer slots in one container, or have its discovery handler report less",
			len(devices), n, name, MaxEnvBytes)
	}
	return Variable{Name: name, Value: string(text)}, nil
}
