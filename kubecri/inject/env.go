package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DevicesEnv is the variable that lists all devices of the container.
const DevicesEnv = "AKRI_DEVICES"

// listed is a device in DevicesEnv.
type listed struct {
	Instance   string            `json:"instance"`
	Slot       string            `json:"slot"`
	Properties map[string]string `json:"properties"`
}

// environment returns the variables: for each property K of each device K_<HASH>,
// and K for the first device that has it; last DevicesEnv.
//
// K is left out when the container sets it itself, since the runtime lets the
// last one win: what a pod's author wrote has precedence over what a device
// reports, as it has with the kubelet's device plugins (GenerateRunContainerOptions).
func environment(config *runtimeapi.ContainerConfig, grants []Grant) ([]*runtimeapi.KeyValue, error) {
	taken := map[string]bool{DevicesEnv: true}
	for _, env := range config.GetEnvs() {
		taken[env.GetKey()] = true
	}
	// The names with a hash are the exact ones: one device's plain K must not
	// take the name of another's K_<HASH>.
	exact := map[string]string{}
	for _, g := range grants {
		for name, value := range g.Device.Properties {
			// Devices of two Configurations may have one hash: the first wins.
			if _, other := exact[exactName(name, g)]; !other {
				exact[exactName(name, g)] = value
			}
		}
	}
	delete(exact, DevicesEnv)

	var envs []*runtimeapi.KeyValue
	emitted := map[string]bool{}
	set := func(name, value string) {
		if !emitted[name] && settable(name, value) {
			emitted[name] = true
			envs = append(envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		}
	}
	devices := make([]listed, 0, len(grants))
	for _, g := range grants {
		for _, name := range slices.Sorted(maps.Keys(g.Device.Properties)) {
			if _, other := exact[name]; !other && !taken[name] {
				set(name, g.Device.Properties[name])
			}
			if value, ok := exact[exactName(name, g)]; ok {
				set(exactName(name, g), value)
			}
		}
		properties := g.Device.Properties
		if properties == nil {
			properties = map[string]string{}
		}
		devices = append(devices, listed{Instance: g.Slot.Instance, Slot: g.Slot.String(), Properties: properties})
	}
	text, err := json.Marshal(devices)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", DevicesEnv, err)
	}
	set(DevicesEnv, string(text))
	return envs, nil
}

// exactName returns K_<HASH>; an Instance's hash follows the last dash of its name.
func exactName(property string, g Grant) string {
	hash := g.Slot.Instance[strings.LastIndexByte(g.Slot.Instance, '-')+1:]
	if property == "" {
		return "" // not a name, and must not become one
	}
	return property + "_" + strings.ToUpper(hash)
}

// settable reports whether a process can have the variable. One with '=' in its
// name would set another, a NUL ends a C string, and CRI's keys are UTF-8. What
// is not settable is still listed in DevicesEnv.
func settable(name, value string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00") && utf8.ValidString(name) && !strings.Contains(value, "\x00")
}
