package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/install/check"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// notWell is the exit code of a check that found something bad; 1 is that of a
// command line that is wrong.
const notWell = 2

const checkDescription = `check asks the container runtime and the API server what kubecri needs of them,
and with --pod what it would give the pod's containers, or why it would refuse
them. Give it kubecri's own flags; without --kubeconfig it uses $KUBECONFIG, as
kubectl does. It changes nothing, and kubecri may run.

It exits with 0 when all is well, with 2 when a line begins with FAIL, and with 1
when it could not begin.`

// newCheckCommand makes `kubecri check`, which sets code when it finds something.
func newCheckCommand(code *int) *cobra.Command {
	o := newOptions()
	pod, start := "", false
	cmd := &cobra.Command{
		Use:          "check",
		Short:        "Tell whether kubecri can work here, and what it would do for a pod",
		Long:         checkDescription,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.kubeconfig = kubeconfigOf(o.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
			if err := o.complete(); err != nil {
				return err
			}
			runtime, err := proxy.Dial(o.runtimeEndpoint)
			if err != nil {
				return err
			}
			defer runtime.Close()
			images, err := dialImages(o)
			if err != nil {
				return err
			}
			api, err := connection.NewClients(o.kubeconfig)
			if err != nil {
				return err
			}
			verifier, err := o.verifier()
			if err != nil {
				return err
			}
			config := check.Config{
				Verifier: verifier,
				Node:     o.nodeName, RuntimeEndpoint: o.runtimeEndpoint, Runtime: runtimeapi.NewRuntimeServiceClient(runtime),
				Server: api.Server, Kube: api.Kube, Client: api.Client, Devices: o.devices,
				Sockets: o.remote.Sockets, Pod: pod,
			}
			if start {
				ctx, cancel := context.WithCancel(cmd.Context())
				defer cancel()
				if config.Plugins, err = startPlugins(ctx, o); err != nil {
					return err
				}
			}
			switch o.mode {
			case modeNRI:
				config.NRI = path(o.nriSocket)
			case modeProxy:
				config.Kubelet, config.Listen = check.FindKubelet(o.nodeName), o.listen
			case modeDevicePlugin:
				podResources, err := o.devicePlugin.dialPodResources()
				if err != nil {
					return err
				}
				defer podResources.Close()
				config.DevicePlugin = &check.DevicePlugin{Directory: o.devicePlugin.directory, PodResourcesEndpoint: o.devicePlugin.podResources,
					PodResources: podresourcesapi.NewPodResourcesListerClient(podResources)}
			}
			if images != nil {
				defer images.Close()
				config.ImageEndpoint, config.Images = o.imageEndpoint, runtimeapi.NewImageServiceClient(images)
			}
			if !check.Run(cmd.Context(), cmd.OutOrStdout(), config) {
				*code = notWell
			}
			return nil
		},
	}
	groups := o.flags()
	groups.FlagSet("check").StringVar(&pod, "pod", "", "Pod to explain, as namespace/name.")
	groups.FlagSet("check").BoolVar(&start, "start-plugins", false,
		"Load and start the device plugins in this process too, to ask them what they know of the node and would give to the pod. Some hardware may mind two.")
	addFlags(cmd, groups)
	return cmd
}

// kubeconfigOf is the kubeconfig that a person means: that of the flag, else the first of
// $KUBECONFIG, as for kubectl; "" is the pod's ServiceAccount.
func kubeconfigOf(flag, env string) string {
	if flag != "" {
		return flag
	}
	for _, path := range filepath.SplitList(env) {
		if path != "" {
			return path
		}
	}
	return ""
}
