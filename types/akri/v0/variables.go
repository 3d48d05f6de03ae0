package v0

import (
	"slices"
	"strings"
)

// DefaultPropertyPrefixes are in force without spec.propertyPrefixes: those of the
// properties that the discovery handlers of Akri and Kubeslot report, and Akri's samples
// of handlers. None of them begins a variable that a loader, a shell or an interpreter reads.
var DefaultPropertyPrefixes = []string{"AKRI_", "DEBUG_ECHO_", "MDNS_", "ONVIF_", "OPCUA_", "PCI_RESOURCE_", "TEMPLATE_", "UDEV_", "USB_"}

// Variables that say what code a process runs, by name and by prefix: where the shell
// finds programs and scripts of its own, the dynamic loader and libc, and what
// interpreters load before the program. No such list is complete, so it only bounds
// brokerProperties of Configurations without propertyPrefixes.
var (
	codeNames = []string{"PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "HOSTALIASES",
		"NODE_OPTIONS", "NODE_PATH", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "R_PROFILE_USER"}
	codePrefixes = []string{"LD_", "DYLD_", "PYTHON", "PERL5", "RUBY", "LUA_", "GIT_", "BASH_FUNC_", "CORECLR_", "COR_", "NVIDIA_"}
)

// MayBeVariable reports whether a property may be an environment variable of that very
// name in containers.
func (s *ConfigurationSpec) MayBeVariable(property string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(property, prefix) }
	if len(s.PropertyPrefixes) > 0 {
		return slices.ContainsFunc(s.PropertyPrefixes, begins)
	}
	if slices.ContainsFunc(DefaultPropertyPrefixes, begins) {
		return true
	}
	_, written := s.BrokerProperties[property]
	return written && !slices.Contains(codeNames, property) && !slices.ContainsFunc(codePrefixes, begins)
}
