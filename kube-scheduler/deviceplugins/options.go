package deviceplugins

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeslot/kubeslot/plugins/load"
)

// DefaultFolder is where the plugins are, as in KubeDevice. That it does not exist
// means that there are none.
const DefaultFolder = "/schedulerplugins"

// Options say which plugins are loaded.
type Options struct {
	// Folder of the *.so files; "" means DefaultFolder.
	Folder string
	// Policy about bad files.
	Policy load.Policy
	// Timeout of a plugin's call; 0 means host.DefaultTimeout.
	Timeout time.Duration
}

// AddFlags adds the flags of the options to the scheduler command, and a section
// about them to its help.
func (o *Options) AddFlags(cmd *cobra.Command) {
	var sections cliflag.NamedFlagSets
	fs := sections.FlagSet("device scheduler plugins")
	o.addTo(fs)
	cmd.Flags().AddFlagSet(fs)
	usage, help := cmd.UsageFunc(), cmd.HelpFunc()
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		err := usage(c)
		cliflag.PrintSections(c.OutOrStderr(), sections, 0)
		return err
	})
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		cliflag.PrintSections(c.OutOrStdout(), sections, 0)
	})
}

func (o *Options) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&o.Folder, "devschedpath", o.Folder, fmt.Sprintf("Folder of device scheduler plugins: its *.so files are loaded in the order of their names. (default %s, which may be missing)", DefaultFolder))
	fs.Var(&o.Policy, "devsched-bad-plugins", "What to do if a plugin cannot be loaded: refuse to start, or skip that file.")
}
