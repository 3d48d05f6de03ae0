package check

import (
	"os"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

// runtimeSockets are where runtimes listen by default: containerd, k3s and RKE2, MicroK8s,
// CRI-O. Tests have others.
var runtimeSockets = []string{"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock", "/run/crio/crio.sock"}

// otherSockets names the sockets of runtimes that this host has, other than the endpoint.
func otherSockets(endpoint string) string {
	var there []string
	for _, path := range runtimeSockets {
		info, err := os.Stat(path)
		if err == nil && info.Mode().Type() == os.ModeSocket && !kubeletargs.SameSocket(path, endpoint) {
			there = append(there, "unix://"+path)
		}
	}
	if len(there) == 0 {
		return ""
	}
	return " This host has " + strings.Join(there, ", ")
}

// switchOn says how a runtime, as "name version", is told to take NRI plugins.
func switchOn(runtime string) string {
	if strings.HasPrefix(runtime, "cri-o") {
		return "CRI-O has it on since 1.30; before, and where it was switched off: enable_nri = true under [crio.nri] in /etc/crio/crio.conf.d/, and restart crio"
	}
	return "containerd has it on since 2.0; before, and where it was switched off: disable = false under [plugins.'io.containerd.nri.v1.nri'] in its configuration, and restart it (docs/nri.md)"
}
