package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
)

// DevicesEnv is the variable that lists all devices of the container.
const DevicesEnv = "AKRI_DEVICES"

// MaxEnvBytes is Linux's MAX_ARG_STRLEN (32 pages of 4 KiB): the longest string
// that execve takes, here NAME=VALUE and a NUL. No variable of one device is
// longer than the list that holds them all.
const MaxEnvBytes = 128 << 10

// Variables that decide what code a process runs, by name and by prefix: where the
// shell finds programs and scripts of its own, the dynamic loader and libc, and
// what interpreters load before the program. A device, which may be anybody's on
// the network, must not set them.
var (
	codeNames = []string{"PATH", "BASH_ENV", "ENV", "SHELLOPTS", "GCONV_PATH", "GLIBC_TUNABLES",
		"RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"}
	codePrefixes = []string{"LD_", "PYTHON", "PERL5"}
)

// withheld reports whether a property is not to become a variable of its name.
func withheld(property string) bool {
	return slices.Contains(codeNames, property) ||
		slices.ContainsFunc(codePrefixes, func(prefix string) bool { return strings.HasPrefix(property, prefix) })
}

// Withheld returns the device's properties that its containers get as K_<HASH> and
// in DevicesEnv but not as K, because K decides what code a process runs. Sorted.
func Withheld(device discovery.Device) []string {
	var names []string
	for name := range device.Properties {
		if withheld(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// list is the name of the variable that lists the devices: with the resource's name
// where the kubelet merges what several resources bring.
func (c *Container) list() string {
	if c.Resource == "" {
		return DevicesEnv
	}
	return DevicesEnv + "_" + strings.ToUpper(strings.ReplaceAll(c.Resource, "-", "_"))
}

// listed is a device in DevicesEnv.
type listed struct {
	Instance   string            `json:"instance"`
	Slot       string            `json:"slot"`
	Properties map[string]string `json:"properties"`
}

// environment returns the variables: for each property K of each device K_<HASH>,
// and K for the first device that has it, unless it is withheld; last DevicesEnv.
//
// Both are left out when a device plugin gives the variable, and when the container
// sets it itself, since the runtime lets the
// last one win: what a pod's author wrote has precedence over what a device
// reports, as it has with the kubelet's device plugins (GenerateRunContainerOptions).
// DevicesEnv is always ours. A list that no process could have is an error.
func environment(container Container, grants []Grant, given []Variable) ([]Variable, error) {
	list := container.list()
	taken := map[string]bool{list: true} // only the list itself may have its name
	for _, name := range container.Env {
		taken[name] = true
	}
	for _, v := range given {
		taken[v.Name] = true
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

	var envs []Variable
	emitted := map[string]bool{}
	set := func(name, value string) {
		if !emitted[name] && settable(name, value) {
			emitted[name] = true
			envs = append(envs, Variable{name, value})
		}
	}
	devices := make([]listed, 0, len(grants))
	for _, g := range grants {
		for _, name := range slices.Sorted(maps.Keys(g.Device.Properties)) {
			if _, other := exact[name]; !other && !taken[name] && !withheld(name) && container.Resource == "" {
				set(name, g.Device.Properties[name])
			}
			if value, ok := exact[exactName(name, g)]; ok && !taken[exactName(name, g)] {
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
	if n := len(list) + len("=\x00") + len(text); n > MaxEnvBytes {
		return nil, fmt.Errorf("the properties of its %d devices take %d bytes in the variable %s, and Linux starts no process with one of more than %d: request fewer slots in one container, or have its discovery handler report less",
			len(grants), n, list, MaxEnvBytes)
	}
	set(list, string(text))
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
