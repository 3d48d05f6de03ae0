package v0

import "testing"

func TestPropertiesThatMayBeVariables(t *testing.T) {
	code := []string{"PATH", "LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES", "PYTHONSTARTUP", "NODE_OPTIONS"}
	// Programs read some of these without case, and others in lower case alone.
	unsafe := []string{"OPENSSL_CONF", "npm_config_node_options", "NPM_CONFIG_USERCONFIG", "Node_Options", "node_options", "MAVEN_OPTS", "KUBECONFIG", "HOME", "PS4",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "no_proxy",
		"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "KUBERNETES_SERVICE_HOST", "PERLLIB", "ld_preload", "Path",
		"SSLKEYLOGFILE", "LESSOPEN", "LESSCLOSE", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_ENDPOINT_URL", "aws_config_file", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXEC_PATH", "sslkeylogfile"}
	anything := []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U", "V", "W", "X", "Y", "Z", "_",
		"a", "b", "h", "l", "n"}
	written := map[string]string{"RESOLUTION_WIDTH": "640", "FORMAT": "JPEG", "SITE": "yard", "zone.a-b": "1", "SOME_INTERPRETERS_NEXT_OPTION": "x",
		"PATH": "x", "LD_PRELOAD": "x", "NVIDIA_VISIBLE_DEVICES": "all", "PYTHONSTARTUP": "x", "NODE_OPTIONS": "x", "BASH_FUNC_ls%%": "() { reboot; }", "A B": "x", "1A": "x", "": "x"}
	for _, test := range []struct {
		name    string
		spec    ConfigurationSpec
		all     []string // variables of all containers
		brokers []string // of the Configuration's own brokers alone
		nobody  []string
	}{{
		name: "of handlers, by default",
		all: []string{"ONVIF_DEVICE_SERVICE_URL", "ONVIF_DEVICE_IP_ADDRESS", "OPCUA_DISCOVERY_URL", "UDEV_DEVNODE", "UDEV_DEVPATH", "DEBUG_ECHO_DESCRIPTION",
			"AKRI_HTTP", "AKRI_HTTP_DEVICE_ENDPOINT", "USB_DEVPATH", "MDNS_SERVICE_NAME"},
		nobody: append([]string{"HTTP_PROXY", "SITE", "SOME_INTERPRETERS_NEXT_OPTION", "URL", "onvif_x", "", "UDEV_A=B", "UDEV_A\nB", "UDEV_ä", "UDEV_A%%"}, code...),
	}, {
		name: "of Akri's brokers, by default",
		spec: ConfigurationSpec{BrokerProperties: written},
		all:  []string{"RESOLUTION_WIDTH", "RESOLUTION_HEIGHT", "FORMAT", "FRAMES_PER_SECOND", "IDENTIFIER", "NAMESPACE_INDEX", "CREDENTIAL_DIRECTORY", "CREDENTIAL_CONFIGMAP_DIRECTORY"},
	}, {
		name:    "that the Configuration itself sets, by default",
		spec:    ConfigurationSpec{BrokerProperties: written},
		brokers: []string{"SITE", "zone.a-b", "SOME_INTERPRETERS_NEXT_OPTION"},
		nobody:  append([]string{"ZONE", "BASH_FUNC_ls%%", "A B", "1A", ""}, code...),
	}, {
		name:   "with a list of its own, nothing else, also in brokers",
		spec:   ConfigurationSpec{PropertyPrefixes: []string{"SONAR_", "DEPTH", "S.x"}, BrokerProperties: written},
		all:    []string{"SONAR_", "SONAR_URL", "DEPTH", "DEPTHS", "S.x-1"},
		nobody: append([]string{"FORMAT", "SITE", "UDEV_DEVNODE", "SONAR", "XSONAR_"}, code...),
	}, {
		name:   "what is known to say what code runs, whatever the list",
		spec:   ConfigurationSpec{PropertyPrefixes: []string{"P", "LD_", "NVIDIA_VISIBLE_DEVICES", "NODE_OPTIONS", "BASH_FUNC_"}, BrokerProperties: written},
		all:    []string{"PORT"},
		nobody: append([]string{"BASH_FUNC_ls%%"}, code...),
	}, {
		name:   "what is known to be unsafe, also by a list that allows everything",
		spec:   ConfigurationSpec{PropertyPrefixes: anything, BrokerProperties: setAll(unsafe)},
		all:    []string{"HOMEPAGE", "NODE_NAME", "PATHS", "PROXY", "PS", "SSL", "OPENSSL", "Http", "AWS", "DOCKER", "LESS", "AWSOME"},
		nobody: append(unsafe, code...),
	}, {
		name:   "what is known to be unsafe, also in brokers",
		spec:   ConfigurationSpec{BrokerProperties: setAll(unsafe)},
		nobody: unsafe,
	}} {
		t.Run(test.name, func(t *testing.T) {
			for _, names := range []struct {
				names        []string
				all, brokers bool
			}{{test.all, true, true}, {test.brokers, false, true}, {test.nobody, false, false}} {
				for _, property := range names.names {
					if may := test.spec.MayBeVariable(property); may != names.all {
						t.Errorf("%q in all containers: %v", property, may)
					}
					if may := test.spec.MayBeBrokerVariable(property); may != names.brokers {
						t.Errorf("%q in brokers: %v", property, may)
					}
				}
			}
		})
	}
}

// setAll are properties of these names.
func setAll(names []string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		all[name] = "x"
	}
	return all
}
