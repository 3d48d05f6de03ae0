package main

import (
	"cmp"
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
	config, configDir string
	runtimeEndpoint   string
	hostnameOverride  string
	// compat is read before the others, see setArgs.
	compat bool
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
	flags.BoolVar(&k.compat, compatFlag, false,
		"Take the kubelet's whole command line: flags that kubecri does not know are ignored, with a warning unless today's kubelet has them. For installations that start kubecri with the kubelet's arguments; a misspelt flag is no error then.")
}

// setArgs gives the command its arguments. With --kubelet-args-compat among them, they
// may be the kubelet's with some of flags among them: setArgs returns those that are
// passed over. Without it a flag that is not in flags is an error of the command.
func setArgs(cmd *cobra.Command, flags *pflag.FlagSet, args []string) kubeletargs.Ignored {
	if args == nil {
		args = []string{} // cobra takes the process's arguments for nil
	}
	kept, ignored := kubeletargs.Split(args, func(name string) (known, takesValue bool) {
		if name == "help" { // cobra adds it later
			return true, false
		}
		if f := flags.Lookup(name); f != nil {
			return true, f.NoOptDefVal == ""
		}
		return false, false
	})
	if !slices.ContainsFunc(kept, asksForCompat) {
		cmd.SetArgs(args)
		return kubeletargs.Ignored{}
	}
	cmd.SetArgs(kept)
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
	nearest, distance := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := spelling.Distance(name, f.Name); d < distance && !f.Hidden {
			nearest, distance = f.Name, d
		}
	})
	if nearest != "" {
		return fmt.Errorf("%w: is --%s meant?", err, nearest)
	}
	return err
}

// endpoints returns where the kubelet expects CRI; "" for what is not said.
func (k *kubeletFlags) endpoints() (kubeletargs.Endpoints, error) {
	e, err := kubeletargs.ReadEndpoints(k.config, k.configDir)
	e.Runtime = cmp.Or(k.runtimeEndpoint, e.Runtime)
	return e, err
}
