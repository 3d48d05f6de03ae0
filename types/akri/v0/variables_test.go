package v0

import "testing"

func TestPropertiesThatMayBeVariables(t *testing.T) {
	for _, test := range []struct {
		name   string
		spec   ConfigurationSpec
		may    []string
		mayNot []string
	}{{
		name: "of handlers, by default",
		may: []string{"ONVIF_DEVICE_SERVICE_URL", "ONVIF_DEVICE_IP_ADDRESS", "OPCUA_DISCOVERY_URL", "UDEV_DEVNODE", "UDEV_DEVPATH", "DEBUG_ECHO_DESCRIPTION",
			"AKRI_HTTP", "AKRI_HTTP_DEVICE_ENDPOINT", "USB_DEVPATH", "MDNS_SERVICE_NAME"},
		mayNot: []string{"PATH", "LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES", "HTTP_PROXY", "SOME_INTERPRETERS_NEXT_OPTION", "URL", "onvif_x", ""},
	}, {
		name: "that the Configuration itself sets, by default",
		spec: ConfigurationSpec{BrokerProperties: map[string]string{"RESOLUTION_WIDTH": "640", "FORMAT": "JPEG", "LD_PRELOAD": "x", "PATH": "x", "PYTHONSTARTUP": "x", "NODE_OPTIONS": "x", "NVIDIA_VISIBLE_DEVICES": "all"}},
		may:  []string{"RESOLUTION_WIDTH", "FORMAT", "UDEV_DEVNODE"}, mayNot: []string{"FRAMES_PER_SECOND", "LD_PRELOAD", "PATH", "PYTHONSTARTUP", "NODE_OPTIONS", "NVIDIA_VISIBLE_DEVICES"},
	}, {
		name: "with a list of its own, nothing else",
		spec: ConfigurationSpec{PropertyPrefixes: []string{"SONAR_", "DEPTH"}, BrokerProperties: map[string]string{"FORMAT": "JPEG"}},
		may:  []string{"SONAR_", "SONAR_URL", "DEPTH", "DEPTHS"}, mayNot: []string{"FORMAT", "UDEV_DEVNODE", "SONAR", "XSONAR_"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			for _, property := range test.may {
				if !test.spec.MayBeVariable(property) {
					t.Errorf("%q may not", property)
				}
			}
			for _, property := range test.mayNot {
				if test.spec.MayBeVariable(property) {
					t.Errorf("%q may", property)
				}
			}
		})
	}
}
