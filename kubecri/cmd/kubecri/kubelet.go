package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// compatFlag has kubecri take the kubelet's command line.
const compatFlag = "kubelet-args-compat"

// kubeletFlags are the kubelet's flags that say something to kubecri, besides
// --kubeconfig, --image-service-endpoint and those of logging, which both have.
type kubeletFlags struct {
	kubeletargs.Arguments
	// compat is read before the others, see setArgs.
	compat bool
}

func (k *kubeletFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&k.Config, "config", "",
		"The kubelet's KubeletConfiguration, for its containerRuntimeEndpoint and imageServiceEndpoint.")
	flags.StringVar(&k.ConfigDir, "config-dir", "",
		"The directory of its drop-in files.")
	flags.StringVar(&k.RuntimeEndpoint, "container-runtime-endpoint", "",
		"Where the kubelet expects the runtime, and kubecri therefore listens unless --listen says otherwise. Wins over --config.")
	flags.StringVar(&k.HostnameOverride, "hostname-override", "",
		"The kubelet's name for the node, for which --node-name wins.")
	flags.BoolVar(&k.compat, compatFlag, false,
		"Take the kubelet's whole command line: flags that kubecri does not know are ignored, with a warning unless today's kubelet has them. For installations that start kubecri with the kubelet's arguments; a misspelt flag is no error then.")
}

// setArgs gives root its arguments, which are for cmd: itself or a subcommand. With --kubelet-args-compat among
// them, they may be the kubelet's with some of cmd's among them: setArgs returns those that are passed over. Without
// it a flag that cmd does not have is an error.
func setArgs(root, cmd *cobra.Command, args []string) (ignored kubeletargs.Ignored) {
	root.SetArgs(append([]string{}, args...)) // cobra takes the process's arguments for nil
	if cmd.Flags().Lookup(compatFlag) != nil && slices.ContainsFunc(args, asksForCompat) {
		ignored = kubeletargs.Ignore(cmd.Flags(), args)
		cmd.FParseErrWhitelist.UnknownFlags = true
	}
	return ignored
}

// asksForCompat reports whether the argument is --kubelet-args-compat.
func asksForCompat(arg string) bool {
	name, value, has := strings.Cut(arg, "=")
	on, err := strconv.ParseBool(value)
	return name == "--"+compatFlag && (!has || on && err == nil)
}

// flagError says of a flag that does not exist whose it is, or which was meant.
func flagError(cmd *cobra.Command, err error) error {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := missing.GetSpecifiedName()
	if slices.Contains(kubeletargs.Flags(), name) {
		return fmt.Errorf("%w: it is a flag of the kubelet; with --%s kubecri takes the kubelet's arguments", err, compatFlag)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if nearest := spelling.Nearest(name, names); nearest != "" {
		return fmt.Errorf("%w: is --%s meant?", err, nearest)
	}
	return err
}
