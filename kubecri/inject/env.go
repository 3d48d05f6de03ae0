package inject

import (
	"strings"
	"unicode/utf8"
)

// DevicesEnv is the variable that lists all devices of the container.
const DevicesEnv = "AKRI_DEVICES"

// MaxEnvBytes is Linux's MAX_ARG_STRLEN (32 pages of 4 KiB): the longest string
// that execve takes, here NAME=VALUE and a NUL. No variable of one device is
// longer than the list that holds them all.
const MaxEnvBytes = 128 << 10

// variable reports whether the container gets the property as a variable of its own name.
func (g *Grant) variable(property string) bool {
	return g.Device.Variables[property] || g.Broker && g.Device.BrokerVariables[property]
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
