package inject

import (
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
