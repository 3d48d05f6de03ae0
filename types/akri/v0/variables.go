package v0

import (
	"slices"
	"strings"
)

// BrokerLabel is on each broker pod, as Akri's controller labels them: the name of its
// Configuration.
const BrokerLabel = "akri.sh/configuration"

// DefaultPropertyPrefixes are in force without spec.propertyPrefixes: those of the
// properties that the discovery handlers of Akri and Kubeslot report, of Akri's samples of
// handlers, and of the brokerProperties of Akri's brokers. None of them begins a variable
// that a loader, a shell or an interpreter reads.
var DefaultPropertyPrefixes = []string{
	"AKRI_", "DEBUG_ECHO_", "MDNS_", "ONVIF_", "OPCUA_", "PCI_RESOURCE_", "TEMPLATE_", "UDEV_", "USB_",
	"CREDENTIAL_", "FORMAT", "FRAMES_PER_SECOND", "IDENTIFIER", "NAMESPACE_INDEX", "RESOLUTION_",
}

// Variables that are known to say what code a process runs, by name and by prefix: where
// the shell finds programs and scripts of its own, the dynamic loader and libc, and what
// interpreters load before the program. No such list is complete: what may be a variable
// is decided by prefixes, and these are never, whatever the prefixes.
var (
	codeNames = []string{"PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "HOSTALIASES",
		"NODE_OPTIONS", "NODE_PATH", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "R_PROFILE_USER"}
	codePrefixes = []string{"LD_", "DYLD_", "PYTHON", "PERL5", "RUBY", "LUA_", "GIT_", "BASH_FUNC_", "CORECLR_", "COR_", "NVIDIA_"}
)

// MayBeVariable reports whether a property, of a device or of brokerProperties, may be an
// environment variable of that very name in each container that uses the device: whether
// one of the prefixes begins it.
func (s *ConfigurationSpec) MayBeVariable(property string) bool {
	prefixes := s.PropertyPrefixes
	if len(prefixes) == 0 {
		prefixes = DefaultPropertyPrefixes
	}
	return harmless(property) && slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(property, prefix) })
}

// MayBeBrokerVariable reports the same of containers of the Configuration's own brokers.
// Who writes brokerProperties writes the brokers' spec, too, and could set the variable
// there: without propertyPrefixes they have all names in brokerProperties, as Akri's have.
func (s *ConfigurationSpec) MayBeBrokerVariable(property string) bool {
	_, written := s.BrokerProperties[property]
	return s.MayBeVariable(property) || written && len(s.PropertyPrefixes) == 0 && harmless(property)
}

// harmless reports whether a property has a name as variables usually have (letters,
// digits, underscores, dots and dashes, no digit first), and one that is not known to say
// what code a process runs.
func harmless(property string) bool {
	for i := range len(property) {
		switch c := property[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '.', c == '-':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return property != "" && !slices.Contains(codeNames, property) &&
		!slices.ContainsFunc(codePrefixes, func(prefix string) bool { return strings.HasPrefix(property, prefix) })
}
