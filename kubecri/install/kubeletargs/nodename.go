package kubeletargs

import (
	"cmp"
	"os"
	"strings"
)

// NodeName returns the name that the kubelet registers its node by, given its
// --hostname-override; see k8s.io/component-helpers/node/util.GetHostname.
func NodeName(hostnameOverride string) (string, error) {
	host, err := os.Hostname()
	if hostnameOverride != "" {
		err = nil
	}
	return strings.ToLower(strings.TrimSpace(cmp.Or(hostnameOverride, host))), err
}
