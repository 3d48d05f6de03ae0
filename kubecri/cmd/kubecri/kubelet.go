package main

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/kubecri/kubeletargs"
)

// kubeletFlags are the kubelet's flags that say something to kubecri, besides
// --kubeconfig, --image-service-endpoint and those of logging, which both have.
type kubeletFlags struct {
	config, configDir string
	runtimeEndpoint   string
	hostnameOverride  string
}

func (k *kubeletFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&k.config, "config", "",
		"The kubelet's KubeletConfiguration, for its containerRuntimeEndpoint and imageServiceEndpoint.")
	flags.StringVar(&k.configDir, "config-dir", "",
		"The directory of its drop-in files.")
	flags.StringVar(&k.runtimeEndpoint, "container-runtime-endpoint", "",
		"Where the kubelet expects the runtime, and kubecri therefore listens unless --listen says otherwise. Wins over --config.")
	flags.StringVar(&k.hostnameOverride, "hostname-override", "",
		"The kubelet's name for the node, for which --node-name wins.")
}

// endpoints returns where the kubelet expects CRI; "" for what is not said.
func (k *kubeletFlags) endpoints() (kubeletargs.Endpoints, error) {
	e, err := kubeletargs.ReadEndpoints(k.config, k.configDir)
	e.Runtime = cmp.Or(k.runtimeEndpoint, e.Runtime)
	return e, err
}

// nodeName returns the name that the kubelet registers its node by, see
// k8s.io/component-helpers/node/util.GetHostname.
func (k *kubeletFlags) nodeName() (string, error) {
	host, err := os.Hostname()
	if k.hostnameOverride != "" {
		err = nil
	}
	return strings.ToLower(strings.TrimSpace(cmp.Or(k.hostnameOverride, host))), err
}
