package v0

import (
	"slices"
	"strings"
)

// BrokerLabel says of which Configuration a broker, or a Service for brokers, is: its name. The name is Akri's.
//
// Label of Pods, Jobs, Services, ResourceClaimTemplates and ResourceClaims. Written by controller. Read by
// controller, kubecri, selectors of people and Services.
const BrokerLabel = "akri.sh/configuration"

// DefaultPropertyPrefixes are in force without spec.propertyPrefixes: those of the
// properties that the discovery handlers of Akri and Kubeslot report, of Akri's samples of
// handlers, and of the brokerProperties of Akri's brokers. None of them begins a variable
// that a loader, a shell or an interpreter reads.
var DefaultPropertyPrefixes = []string{
	"AKRI_", "DEBUG_ECHO_", "MDNS_", "ONVIF_", "OPCUA_", "PCI_RESOURCE_", "TEMPLATE_", "UDEV_", "USB_",
	"CREDENTIAL_", "FORMAT", "FRAMES_PER_SECOND", "IDENTIFIER", "NAMESPACE_INDEX", "RESOLUTION_",
}

// Variables that are known to say what code a process runs, or whom it talks to and
// trusts: where the shell finds programs and scripts of its own, the dynamic loader and
// libc, what interpreters and build tools load before the program, where clients find
// their configuration, credentials, certificates, proxies and the API server, and where the
// keys of TLS are written. They are compared without
// case, as some programs read them. No such list is complete: what may be a variable is
// decided by prefixes, and these are never, whatever the prefixes.
var (
	unsafeNames = []string{"PATH", "HOME", "SHELL", "BASH_ENV", "ENV", "IFS", "PS0", "PS4", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND",
		"GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS",
		"NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "CLASSPATH", "JAVA_OPTS", "JAVA_HOME", "GRADLE_OPTS", "SBT_OPTS",
		"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "R_PROFILE_USER", "GEM_HOME", "GEM_PATH",
		"EDITOR", "VISUAL", "PAGER", "KUBECONFIG", "CURL_HOME", "WGETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
		"SSLKEYLOGFILE", "LESSOPEN", "LESSCLOSE", "GOOGLE_APPLICATION_CREDENTIALS",
		"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "RSYNC_PROXY", "SOCKS_PROXY", "WS_PROXY", "WSS_PROXY", "GRPC_PROXY", "ALL_PROXY", "NO_PROXY", "GOPROXY"}
	unsafePrefixes = []string{"LD_", "DYLD_", "PYTHON", "PERL", "RUBY", "LUA_", "GIT_", "BASH_FUNC_", "CORECLR_", "COR_", "NVIDIA_",
		"OPENSSL_", "NPM_CONFIG_", "MAVEN_", "PIP_", "BUNDLE_", "XDG_", "KUBERNETES_", "AWS_", "DOCKER_"}
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
// digits, underscores, dots and dashes, no digit first), and none of the unsafe ones.
func harmless(property string) bool {
	for i := range len(property) {
		switch c := property[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '.', c == '-':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	upper := strings.ToUpper(property)
	return property != "" && !slices.Contains(unsafeNames, upper) &&
		!slices.ContainsFunc(unsafePrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) })
}
